package joblog

import (
	"bytes"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// jobPattern matches the stream names that CloudWatch Logs accepts, without the characters
// that need quoting in a path. It is compiled on first use, so that a process that uses no
// log does not pay for it.
var jobPattern = pattern.New(`^[A-Za-z0-9_.-]{1,128}$`)

// CheckJob returns an error of KindInvalid if job cannot have logs. A job is 1 to 128
// letters, digits, dots, hyphens and underscores.
func CheckJob(job string) error {
	if jobPattern.MatchString(job) {
		return nil
	}
	return fairlead.Invalid(fairlead.CodeInvalidJob, "%.150q is not a job: use 1 to 128 letters, digits, dots, hyphens and underscores", job)
}

// CheckStream returns an error of KindInvalid if s cannot be a stream.
func CheckStream(s Stream) error {
	if err := CheckJob(s.Job); err != nil {
		return err
	}
	if s.Epoch < 1 {
		return fairlead.Invalid(fairlead.CodeInvalidEpoch, "epoch %d of job %s is below 1", s.Epoch, s.Job)
	}
	return nil
}

// CheckAppend returns the error of Append for invalid arguments, so that every driver refuses the same arguments. The
// error is of KindTooLarge for more than MaxAppend bytes, and of KindInvalid for an invalid stream or a negative
// offset.
func CheckAppend(s Stream, offset int64, data []byte) error {
	if err := checkOffset(s, offset); err != nil {
		return err
	}
	if len(data) > MaxAppend {
		return &fairlead.Error{
			Kind: fairlead.KindTooLarge, Code: fairlead.CodeAppendTooLarge,
			Message: fmt.Sprintf("an append has %d bytes: at most %d are allowed", len(data), MaxAppend),
			Hint:    "Append the data in parts.",
		}
	}
	return nil
}

// CheckSpend returns the error of Spend for invalid arguments, of KindInvalid. A runner has the form of a job's name.
func CheckSpend(runner string, n int64) error {
	if !jobPattern.MatchString(runner) || n < 0 {
		return fairlead.Invalid(fairlead.CodeInvalidLogSize, "%d bytes of log cannot be counted for runner %.150q", n, runner)
	}
	return nil
}

// CheckMove returns the error of Move for an invalid info: an error of KindInvalid for an invalid stream or a size that
// no stream can have.
func CheckMove(info Info) error {
	if err := CheckStream(info.Stream); err != nil {
		return err
	}
	if info.Size < 0 || info.Size > MaxStream {
		return fairlead.Invalid(fairlead.CodeInvalidLogSize, "a size of %d bytes is invalid for log %s", info.Size, info.Stream)
	}
	return nil
}

// NotMovable returns the error of a driver that cannot move the stream stored.
func NotMovable(stored Info) error {
	why := "has not ended"
	if stored.Ended {
		why = fmt.Sprintf("has %d bytes, more than the other store has", stored.Size)
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeLogNotMovable,
		Message: fmt.Sprintf("log %s %s", stored.Stream, why), Hint: "Archive the log again when it has ended."}
}

// CheckRead returns the error of Read and Follow for invalid arguments, of KindInvalid. limit is at least 1.
func CheckRead(s Stream, offset int64, limit int) error {
	if err := checkOffset(s, offset); err != nil {
		return err
	}
	if limit < 1 {
		return fairlead.Invalid(fairlead.CodeInvalidLimit, "limit of %d bytes to read: at least 1 is required", limit)
	}
	return nil
}

func checkOffset(s Stream, offset int64) error {
	if err := CheckStream(s); err != nil {
		return err
	}
	if offset < 0 {
		return fairlead.Invalid(fairlead.CodeInvalidOffset, "offset %d of log %s is negative", offset, s)
	}
	return nil
}

// Fresh decides how to append data to a stream. stored describes the stored part, fenced
// reports whether the stream is fenced, and limit is the maximum size of the driver's
// streams. Fresh returns the part of data that is not stored yet, or the reason to refuse
// the append. read returns the first n stored bytes from offset on.
func Fresh(stored Info, fenced bool, limit, offset int64, data []byte, read func(n int64) ([]byte, error)) ([]byte, error) {
	var closed error
	switch {
	case fenced || stored.Ended:
		closed = ErrFenced
	case stored.Cut:
		closed = ErrCut
	}
	if offset > stored.Size { // check this first: for a larger offset, the sum below overflows
		if closed != nil {
			return nil, closed
		}
		return nil, &OffsetError{Want: stored.Size}
	}
	end := offset + int64(len(data))
	switch {
	case closed != nil && end > stored.Size:
		return nil, closed
	case end > limit:
		return nil, ErrFull
	}
	overlap := min(end, stored.Size) - offset
	if overlap == 0 {
		return data, nil
	}
	old, err := read(overlap)
	switch {
	case err != nil:
		return nil, err
	case bytes.Equal(old, data[:overlap]):
		return data[overlap:], nil
	case closed != nil:
		return nil, closed
	}
	return nil, ErrDiverged
}
