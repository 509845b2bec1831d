// Command logindex is the function that the installs' log groups invoke: it copies the log lines of
// runners into the log that clients read, and archives the logs of ended jobs.
package main

import "github.com/fairlead/fairlead/functions/internal/plane"

func main() { plane.Main(plane.LogIndex) }
