// Command sweep is the function that finds and repairs lost work every few seconds.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Sweep) }
