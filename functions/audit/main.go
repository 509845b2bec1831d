// Command audit is the function that reads the table's changes with a note: it appends entries to the
// audit and signs checkpoints.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.Audit) }
