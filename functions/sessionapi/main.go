// Command sessionapi is the function that serves the Runner API's routes for callers without a
// session: enrolment, challenges and sessions.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.SessionAPI) }
