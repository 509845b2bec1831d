package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// loggedJob is what BenchmarkJobLog counts: the log of 1 MB of one job, from the step's pieces to the archive.
type loggedJob struct {
	Bytes    int     `json:"bytes"`    // of the log
	Pieces   int     `json:"pieces"`   // PutLogEvents, deliveries and appends
	Events   int     `json:"events"`   // bytes that CloudWatch Logs bills
	Writes   float64 `json:"writes"`   // write units of the log table, as DynamoDB Local counts them
	Reads    float64 `json:"reads"`    // read units of the log table, as DynamoDB Local counts them
	Owners   int     `json:"owners"`   // questions for the install of a stream, of one process
	Packed   int     `json:"packed"`   // bytes of the pieces in the table
	Archived int     `json:"archived"` // bytes of the file in the archive
	Puts     int     `json:"puts"`     // writes to the archive
	Gets     int     `json:"gets"`     // reads from the archive
	Logged   int     `json:"logged"`   // bytes that the function logs
}

// loggedFile has the result of BenchmarkJobLog.
const loggedFile = "aws-log.json"

const (
	monthDays   = 30.4
	tableDays   = 7   // a piece stays in the log table; see pkg/joblog/dynamo
	recordDays  = 30  // the record stays in CloudWatch Logs: the default of infra/control
	archiveDays = 365 // a log stays in the archive: the default of infra/control
	// recordRatio is the compression of CloudWatch Logs for what it keeps, as AWS's price list has it.
	recordRatio = 0.15
	// subscribers is the number of processes of logindex that one job's deliveries meet: about as many run at once when
	// 10,000 installs work.
	subscribers = 8
	// jobReads is the price of one question for the install of a stream: the job's item has less than 8 KB.
	jobReads = 2
)

// logUsage sets the usage of a job's log from the counts of BenchmarkJobLog.
func logUsage(b *bench, counted stacks, out *taken) error {
	text, err := os.ReadFile(b.path("bench", loggedFile))
	if err != nil {
		return fmt.Errorf("%w; run `make bench-aws`", err)
	}
	var l loggedJob
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("%s: %w", loggedFile, err)
	}
	out.Log = l.usage(counted.piece())
	b.note("a log of %d bytes in %d pieces: %.0f write units and %.0f read units of the log table, %d bytes in it",
		l.Bytes, l.Pieces, l.Writes, l.Reads, l.Packed)
	return nil
}

// usage returns the usage of the log, with the GB-seconds of an invocation of logindex.
func (l loggedJob) usage(gbSeconds float64) usage {
	invokes := float64(l.Pieces) + 1 // one more archives the log
	packed, archived := float64(l.Packed)/1e9, float64(l.Archived)/1e9
	return usage{Invokes: invokes, GBSeconds: invokes * gbSeconds, Writes: l.Writes, Reads: l.Reads + subscribers*jobReads*float64(l.Owners),
		Puts: float64(l.Puts), Gets: float64(l.Gets), LogGB: float64(l.Events+l.Logged) / 1e9,
		TableGB: packed * tableDays / monthDays, BlobGB: archived * archiveDays / monthDays, KeptGB: float64(l.Events) / 1e9 * recordRatio * recordDays / monthDays}
}
