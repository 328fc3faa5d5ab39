The airline Norair cancelled 80 flights on Wednesday because of a computer fault. Thousands of passengers waited for hours.

The company apologised and promised refunds. Engineers found the fault in an update of the booking system. Flights should be normal again on Friday.

@highlight

Norair cancels 80 flights after computer fault

@highlight

Passengers will get refunds
