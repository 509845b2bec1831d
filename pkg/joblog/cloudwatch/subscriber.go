package cloudwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/retry"
)

// Delivery is what a subscription brings at a time: messages of one log stream.
type Delivery struct {
	Group, Stream string
	Messages      []string
}

// Taken counts what became of a delivery.
type Taken struct {
	Pieces  int // that are in the log now
	Refused int // messages that will never be
}

// Subscriber takes what the subscriptions of the installs' log groups bring
// into the log. What it cannot take for good, it refuses, counts and logs:
// whoever may write to a log group may write anything. Safe for concurrent use.
// All fields are required.
type Subscriber struct {
	Log joblog.Log
	// Groups begins the names of the log groups; an install's identifier follows.
	Groups string
	// Owns returns nil if the stream is of a job of the install, an error of
	// KindForbidden or KindNotFound if it is not, and another if it cannot tell.
	Owns func(ctx context.Context, install string, s joblog.Stream) error
	// Record reads the log group of that name.
	Record func(group string) *Transport
	Logger *slog.Logger
}

// How a gap is waited for: deliveries of one stream overtake each other, and
// what is missing is on its way in another process. Then the record is read.
const (
	gapLooks = 4
	gapPause = 100 * time.Millisecond // before the first look; doubled for each next
)

// Take brings the delivery into the log. An error is worth a repeat: the
// delivery then comes again, and what is in the log already changes nothing.
func (x *Subscriber) Take(ctx context.Context, d Delivery) (Taken, error) {
	install, s, err := x.source(ctx, d)
	if err != nil {
		if k := fairlead.KindOf(err); k != fairlead.KindInvalid && k != fairlead.KindForbidden && k != fairlead.KindNotFound {
			return Taken{}, fmt.Errorf("take log stream %s of %s: %w", d.Stream, d.Group, err)
		}
		return x.refuse(d, Taken{Refused: len(d.Messages)}, err), nil
	}
	var t Taken
	var bad error
	var pieces []Event
	for _, m := range d.Messages {
		e, err := Decode(m)
		if err != nil {
			t.Refused++
			bad = err
			continue
		}
		pieces = append(pieces, e)
	}
	if bad != nil {
		t = x.refuse(d, t, bad)
	}
	err = x.ingest(ctx, d.Group, s, pieces)
	switch {
	case err == nil, errors.Is(err, joblog.ErrMoved):
		// A log that is archived was made whole from the record before: what
		// comes late, or again, is in it.
		t.Pieces = len(pieces)
		return t, nil
	case errors.Is(err, joblog.ErrFenced), errors.Is(err, joblog.ErrDiverged), errors.Is(err, joblog.ErrFull), errors.Is(err, joblog.ErrNotFound):
		// What a log has not taken when it ends is looked for when it is archived.
		t.Refused += len(pieces)
		return x.refuse(d, t, err), nil
	}
	return t, fmt.Errorf("take log %s of install %s: %w", s, install, err)
}

func (x *Subscriber) refuse(d Delivery, t Taken, why error) Taken {
	x.Logger.Warn("events of a log group were refused", "group", d.Group, "stream", d.Stream, "refused", t.Refused, "of", len(d.Messages), "error", why)
	return t
}

// source returns what the delivery is of, or why it is not ours.
func (x *Subscriber) source(ctx context.Context, d Delivery) (install string, s joblog.Stream, err error) {
	install, ok := strings.CutPrefix(d.Group, x.Groups)
	if !ok || install == "" {
		return "", s, fairlead.Invalid(fairlead.CodeInvalidLogGroup, "%.200q is no log group of an install", d.Group)
	}
	if s, err = ParseStreamName(d.Stream); err != nil {
		return "", s, err
	}
	return install, s, x.Owns(ctx, install, s)
}

func (x *Subscriber) ingest(ctx context.Context, group string, s joblog.Stream, pieces []Event) error {
	err := Ingest(ctx, x.Log, s, pieces)
	for look := range gapLooks {
		if _, gap := errors.AsType[*joblog.OffsetError](err); !gap {
			return err
		}
		if err := retry.Sleep(ctx, gapPause<<look); err != nil {
			return err
		}
		err = Ingest(ctx, x.Log, s, pieces)
	}
	if _, gap := errors.AsType[*joblog.OffsetError](err); !gap {
		return err
	}
	if err := x.Record(group).Repair(ctx, x.Log, s); err != nil {
		return err
	}
	return Ingest(ctx, x.Log, s, pieces)
}
