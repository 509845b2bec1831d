// Command logindex is the function behind the installs' log groups: it brings
// what runners wrote there into the log that everybody reads, and archives the
// logs of jobs that are over.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.LogIndex) }
