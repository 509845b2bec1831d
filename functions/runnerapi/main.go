// Command runnerapi is the function that serves the Runner API to agents with a session, and to
// steps.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.RunnerAPI) }
