// Command direct is the function that gives the agents of direct launch the runners that they
// serve, their configurations and enrolment tokens.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Direct) }
