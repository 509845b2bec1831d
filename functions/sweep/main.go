// Command sweep is the function that repairs, every few seconds, what was lost.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Sweep) }
