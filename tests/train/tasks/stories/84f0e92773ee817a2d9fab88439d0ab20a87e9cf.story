The parliament voted on Monday to ban plastic bags in shops. The law takes effect in January.

Shops that break it pay up to 5,000 dollars. Paper bags remain allowed. Environmental groups called the vote a first step.

@highlight

Parliament bans plastic bags from January

@highlight

Shops that break the law pay up to 5,000 dollars
