package cloudwatch

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// maxPages is the maximum number of pages that Rest reads of a log stream. A page has at most
// a mebibyte and 10,000 events. The largest log has about 180 pages if every piece is in
// base64 and was put twice.
const maxPages = 500

// Rest implements archive.Record. It returns the bytes of the stream in CloudWatch from
// offset have.Size up to the first gap. It also returns the writer's report at the end of
// the stream, or nil if there is no report. It ignores events that are not pieces of a log.
// Use Rest only for missing bytes, not to follow a log: CloudWatch permits only 10 to 25
// reads a second in a region.
func (t *Transport) Rest(ctx context.Context, have joblog.Info) (rest []byte, end *joblog.Info, err error) {
	s := have.Stream
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return nil, nil, err
	}
	var pieces []Event
	in := &cloudwatchlogs.GetLogEventsInput{
		LogGroupName: &t.group, LogStreamName: aws.String(StreamName(s)), StartFromHead: aws.Bool(true),
	}
	for page, size := 0, 0; page < maxPages && size < 2*joblog.MaxStream; page++ {
		out, err := t.client.GetLogEvents(ctx, in)
		if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
			break // the log stream does not exist, so it has no events
		}
		if err != nil {
			return nil, nil, awsapi.Classify(ctx, "CloudWatch Logs", "read the record of log "+s.String(), err)
		}
		for _, e := range out.Events {
			piece, err := Decode(aws.ToString(e.Message))
			switch {
			case err != nil:
			case piece.End != nil:
				end = &joblog.Info{Stream: s, Size: piece.Offset, Ended: true, CRC32: piece.End.CRC32, Truncated: piece.End.Truncated}
			case piece.Offset+int64(len(piece.Data)) > have.Size:
				pieces = append(pieces, piece)
				size += len(piece.Data)
			}
		}
		if aws.ToString(out.NextForwardToken) == aws.ToString(in.NextToken) { // the same token marks the end
			break
		}
		in.NextToken = out.NextForwardToken
	}
	slices.SortStableFunc(pieces, byOffset)
	at := have.Size
	for _, p := range pieces {
		if p.Offset > at {
			break
		}
		if n := p.Offset + int64(len(p.Data)); n > at {
			rest = append(rest, p.Data[at-p.Offset:]...)
			at = n
		}
	}
	return rest, end, nil
}

func byOffset(a, b Event) int { return cmp.Compare(a.Offset, b.Offset) }

// Repair appends the bytes that only CloudWatch has to the log. Use it if later deliveries do
// not bring the missing bytes.
func (t *Transport) Repair(ctx context.Context, log joblog.Log, s joblog.Stream) error {
	c, err := log.Read(ctx, s, 0, 1) // only Info of the chunk is needed
	if err != nil {
		return err
	}
	rest, _, err := t.Rest(ctx, c.Info)
	if err != nil {
		return err
	}
	at := c.Info.Size
	for len(rest) > 0 {
		n := min(len(rest), joblog.MaxAppend)
		if at, err = log.Append(ctx, s, at, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// Ingest appends the events to the log. The events may repeat and be in any order. If bytes
// before an event are missing, it returns a *joblog.OffsetError. In this case the caller must
// ingest the events again later, or Repair must fetch the missing bytes. Ingest ignores the
// event that reports the end of a stream, because the writer also reports the end to the
// control plane.
func Ingest(ctx context.Context, log joblog.Log, s joblog.Stream, events []Event) error {
	events = slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.End != nil })
	slices.SortStableFunc(events, byOffset)
	for len(events) > 0 {
		// Append consecutive pieces together, because each append to the log costs money, in
		// addition to the cost of each byte.
		first := events[0]
		data, n := slices.Clone(first.Data), 1
		for n < len(events) && events[n].Offset == first.Offset+int64(len(data)) && len(data)+len(events[n].Data) <= joblog.MaxAppend {
			data = append(data, events[n].Data...)
			n++
		}
		if _, err := log.Append(ctx, s, first.Offset, data); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
