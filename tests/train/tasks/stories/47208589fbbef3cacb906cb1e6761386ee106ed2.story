The lake of Senna is lower than ever since records began in 1901. Boats lie on dry mud.

The village takes its drinking water from the lake. Mayor Ivo Kern has forbidden the watering of gardens. Rain is not expected before October.

@highlight

Lake Senna at lowest level since 1901

@highlight

Watering of gardens forbidden
