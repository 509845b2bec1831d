// Command webhook is the function that delivers domain events to the vendor's
// endpoints.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Webhook) }
