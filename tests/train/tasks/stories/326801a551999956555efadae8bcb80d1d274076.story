A dog that vanished two years ago has come home. The brown terrier, Biscuit, was found in a barn forty miles away.

A vet read the chip under its skin and called the owner. "I did not believe it until he barked," said Ana Ruiz. Biscuit is thin but healthy.

@highlight

Terrier returns home after two years

@highlight

A vet identified it by its chip
