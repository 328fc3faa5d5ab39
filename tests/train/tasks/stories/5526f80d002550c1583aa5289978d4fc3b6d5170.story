Scientists have found a new species of frog on the island of Maro. It is the size of a fingernail and lives under wet leaves.

Its call sounds like a cricket. The team heard it for three weeks before they saw one. They warn that the forest is being cut down.

@highlight

New species of tiny frog found on Maro

@highlight

Scientists warn that its forest is being cut down
