A train without a driver began to run between the airport and the city on Monday. It takes eleven minutes.

Operators watch it from a control room. The first day passed without trouble, apart from one door that would not close. A ticket costs four dollars.

@highlight

Driverless train links airport and city

@highlight

First day passed almost without trouble
