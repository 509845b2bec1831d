// Command dispatch is the function that reads the table's stream: it sends the wake-ups of queued
// jobs again and publishes domain events.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Dispatch) }
