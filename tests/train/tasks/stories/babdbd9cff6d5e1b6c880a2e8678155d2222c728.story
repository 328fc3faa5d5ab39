The city library will lend tools from next month. Drills, saws and ladders can be taken home for a week.

Librarian Hugo Meyer says that most people use a drill for twelve minutes in its whole life. The idea came from a reader. More than 300 tools have been donated.

@highlight

City library will lend tools for a week

@highlight

More than 300 tools were donated
