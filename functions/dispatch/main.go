// Command dispatch is the function behind the table's stream: it wakes the
// runners of queued jobs once more, and publishes what happened.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Dispatch) }
