Farmers in the valley fear for the apple harvest after three nights of frost. Temperatures fell to minus five degrees.

Some lit fires between the rows of trees to protect the blossoms. The farmers' union estimates that half of the crop is lost. Prices may rise in autumn.

@highlight

Frost destroys half of the valley's apple crop

@highlight

Farmers lit fires to protect blossoms
