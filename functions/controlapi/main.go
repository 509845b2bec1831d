// Command controlapi is the function that serves the Control API, for people and their tools.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.ControlAPI) }
