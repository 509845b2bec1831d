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

// maxPages is how many pages of a log stream are read at most. A page has a
// mebibyte or 10,000 events; the largest log, every piece put twice and in
// base64, has some 180.
const maxPages = 500

// Rest returns what CloudWatch has of the stream beyond have, as far as it is
// there without a gap, and the writer's word on its end, or nil; it implements
// archive.Record. Events that are no pieces are passed by. Reading is what
// CloudWatch allows little of, 10 to 25 requests a second in a region, so it is
// for what is missing and for nobody who wants to follow a log.
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
			break // nothing was ever put
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
		if aws.ToString(out.NextForwardToken) == aws.ToString(in.NextToken) { // the end says so by the same token
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

// Repair brings into the log what CloudWatch has of the stream and the log has
// not. It is for a gap that does not close by itself.
func (t *Transport) Repair(ctx context.Context, log joblog.Log, s joblog.Stream) error {
	c, err := log.Read(ctx, s, 0, 1) // only its Info is wanted
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

// Ingest appends the events, which may repeat and come in any order, to the
// log. A *joblog.OffsetError says that something before them is missing: they
// come again later, or Repair fetches it. The end of a stream is said to no
// log: who writes it says it to the control plane, too.
func Ingest(ctx context.Context, log joblog.Log, s joblog.Stream, events []Event) error {
	events = slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.End != nil })
	slices.SortStableFunc(events, byOffset)
	for len(events) > 0 {
		// One append for pieces that follow each other: the log charges by the
		// append as well as by the byte.
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
