A storm tore the roof from the stadium in Kelso on Thursday night. Winds reached 90 miles per hour.

The stadium was empty. Saturday's match will be played in another town. Repairs will take two months.

@highlight

Storm tears roof from stadium in Kelso

@highlight

Match on Saturday moved to another town
