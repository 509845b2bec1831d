// Command runnerapi is the function that serves the Runner API, for agents and
// steps.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.RunnerAPI) }
