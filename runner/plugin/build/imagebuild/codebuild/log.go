package codebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/pkg/retry"
)

// logReader is how far the log of a build was read.
type logReader struct {
	next   string // token of the next page; "": from the start
	failed bool   // the log cannot be read
}

// copyLog writes what is new in the build's log to the job's log, and returns the number of lines. A log that cannot be read
// does not end the build.
func (j *job) copyLog(ctx context.Context, b build) (lines int, err error) {
	for {
		at := j.lines.next
		n, err := j.page(ctx, b)
		lines += n
		if err != nil || j.lines.next == at { // a page without lines can come before the last one; the last one has the token of the request
			return lines, err
		}
	}
}

// page copies one page, and returns the number of its lines.
func (j *job) page(ctx context.Context, b build) (lines int, err error) {
	if j.lines.failed || b.Logs.StreamName == "" {
		return 0, nil
	}
	in := map[string]any{"logGroupName": j.cfg.Access.LogGroup, "logStreamName": b.Logs.StreamName, "startFromHead": true}
	if j.lines.next != "" {
		in["nextToken"] = j.lines.next
	}
	var out struct {
		Events           []struct{ Message string }
		NextForwardToken string
	}
	err = j.aws.logs(ctx, "GetLogEvents", in, &out)
	if r, ok := errors.AsType[*refusal](err); ok && r.code == "ResourceNotFoundException" {
		return 0, nil // the build has written nothing yet
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		j.lines.failed = true
		fmt.Fprintf(j.log, "[fairlead: the log of the build %s cannot be read: %v]\n", b.ID, err)
		return 0, nil
	}
	j.lines.next = out.NextForwardToken
	for _, e := range out.Events {
		text := strings.TrimRight(e.Message, "\r\n") + "\n"
		if _, err := io.WriteString(j.log, text); err != nil {
			return 0, fmt.Errorf("write the log: %w", err)
		}
	}
	return len(out.Events), nil
}

// The looks at the log of a build that has ended, until quietLooks in a row find nothing new.
const (
	quietLooks = 2
	lastLooks  = 6
)

// restOfLog copies the end of the log. CloudWatch shows a line some seconds after it was written.
func (j *job) restOfLog(ctx context.Context, b build) error {
	for look, quiet := 0, 0; look < lastLooks && quiet < quietLooks && !j.lines.failed; look++ {
		if err := retry.Sleep(ctx, j.cfg.Every); err != nil {
			return err
		}
		n, err := j.copyLog(ctx, b)
		if err != nil {
			return err
		}
		if quiet++; n > 0 {
			quiet = 0
		}
	}
	return nil
}
