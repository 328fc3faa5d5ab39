The price of coffee has doubled within a year. Drought in two growing countries is the main reason.

Roasters say that they can't keep prices down any longer. A cup may cost a dollar more by summer. Some cafes mix in barley.

@highlight

Coffee price doubles after drought

@highlight

A cup may cost a dollar more by summer
