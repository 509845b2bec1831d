package cloudwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/retry"
)

// Delivery is one delivery of a subscription: messages of one log stream.
type Delivery struct {
	Group, Stream string
	Messages      []string
}

// lateAfter is the age from which a delivery is late.
const lateAfter = time.Minute

// Late is a delivery whose oldest line was written long ago. The age includes the delay of
// CloudWatch Logs itself, and the difference between the clocks of the writer and the reader.
type Late struct {
	Group, Stream string
	Age           time.Duration
}

// LateDelivery returns the Late of a delivery at the time now, and true if it is late. written is
// when its oldest line was written.
func LateDelivery(d Delivery, written, now time.Time) (Late, bool) {
	age := now.Sub(written)
	return Late{d.Group, d.Stream, age}, age > lateAfter
}

// LogValue returns the attributes of a log line. A metric of the stack on AWS takes lag_ms from
// this line.
func (l Late) LogValue() slog.Value {
	return slog.GroupValue(slog.String("group", l.Group), slog.String("stream", l.Stream), slog.Int64("lag_ms", l.Age.Milliseconds()))
}

// Taken counts the results of a delivery.
type Taken struct {
	Pieces  int // pieces that the log has accepted
	Refused int // messages that the log can never accept
}

// Subscriber appends the events of the installs' log groups to the log. If it can never
// append a message, it refuses the message, counts it and writes a warning to Logger: any
// writer with access to a log group can write anything. Safe for concurrent use. All exported
// fields are required.
type Subscriber struct {
	Log joblog.Log
	// Groups is the prefix of the names of the log groups. The id of the install follows.
	Groups string
	// Owns returns the job's runner if the stream belongs to a job of the install. If it does not, Owns
	// returns an error of KindForbidden or KindNotFound. If Owns cannot find out, it returns
	// an error of another kind.
	Owns func(ctx context.Context, install string, s joblog.Stream) (runner string, err error)
	// Budget limits the bytes of each runner.
	Budget joblog.Budget
	Now    func() time.Time
	// Record returns the transport that reads the log group.
	Record func(group string) *Transport
	Logger *slog.Logger

	mu    sync.Mutex
	owned map[joblog.Stream]owner // of each stream that Owns has accepted; see maxOwned
}

// owner is what a Subscriber knows about a stream.
type owner struct {
	install, runner string
	// cut means that the log accepts no more bytes of the stream. A runner that prints without end then costs an
	// invocation for each delivery, but no request and no line of log.
	cut bool
}

// maxOwned is the number of streams whose install a Subscriber remembers. A running job has a delivery every two seconds,
// and each question costs reads of the table. The install of a stream never changes.
const maxOwned = 1000

// owner is Owns, but asks only once for each stream of the install.
func (x *Subscriber) owner(ctx context.Context, install string, s joblog.Stream) (owner, error) {
	x.mu.Lock()
	o := x.owned[s]
	x.mu.Unlock()
	if o.install == install {
		return o, nil
	}
	runner, err := x.Owns(ctx, install, s)
	if err != nil {
		return owner{}, err
	}
	o = owner{install: install, runner: runner}
	x.remember(s, o)
	return o, nil
}

func (x *Subscriber) remember(s joblog.Stream, o owner) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.owned == nil || len(x.owned) >= maxOwned {
		x.owned = map[joblog.Stream]owner{}
	}
	x.owned[s] = o
}

// Deliveries of one stream may overtake each other, so another process may soon append the
// bytes that are missing before an event. If there is such a gap, the subscriber waits and
// tries the append again, gapAttempts times. Then it reads the missing bytes from the record
// in CloudWatch.
const (
	gapAttempts = 4
	gapPause    = 100 * time.Millisecond // wait before the first repeated attempt; each next wait is twice as long
)

// Take appends the delivery to the log. After an error, the caller must repeat the delivery.
// Bytes that the log already has are not stored again.
func (x *Subscriber) Take(ctx context.Context, d Delivery) (Taken, error) {
	o, s, err := x.source(ctx, d)
	if err != nil {
		if k := fairlead.KindOf(err); k != fairlead.KindInvalid && k != fairlead.KindForbidden && k != fairlead.KindNotFound {
			return Taken{}, fmt.Errorf("take log stream %s of %s: %w", d.Stream, d.Group, err)
		}
		return x.refuse(d, Taken{Refused: len(d.Messages)}, err), nil
	}
	if o.cut {
		return Taken{Refused: len(d.Messages)}, nil
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
	err = x.ingest(ctx, d.Group, s, o.runner, pieces)
	switch {
	case err == nil, errors.Is(err, joblog.ErrMoved):
		// The log was archived. Before a log is archived, it is completed from the record, so
		// it already has late and repeated bytes.
		t.Pieces = len(pieces)
		return t, nil
	case errors.Is(err, joblog.ErrCut):
		o.cut = true
		x.remember(s, o)
		t.Refused += len(pieces)
		return x.refuse(d, t, err), nil
	case errors.Is(err, joblog.ErrFenced), errors.Is(err, joblog.ErrDiverged), errors.Is(err, joblog.ErrFull), errors.Is(err, joblog.ErrNotFound):
		// If the log ended before it had these bytes, the archive later reads them from the
		// record.
		t.Refused += len(pieces)
		return x.refuse(d, t, err), nil
	}
	return t, fmt.Errorf("take log %s of install %s: %w", s, o.install, err)
}

func (x *Subscriber) refuse(d Delivery, t Taken, why error) Taken {
	x.Logger.Warn("events of a log group were refused", "group", d.Group, "stream", d.Stream, "refused", t.Refused, "of", len(d.Messages), "error", why)
	return t
}

// source returns the owner and the stream of the delivery, or an error if the delivery is
// refused or if Owns cannot find out whether the install owns the stream.
func (x *Subscriber) source(ctx context.Context, d Delivery) (o owner, s joblog.Stream, err error) {
	install, ok := strings.CutPrefix(d.Group, x.Groups)
	if !ok || install == "" {
		return owner{}, s, fairlead.Invalid(fairlead.CodeInvalidLogGroup, "%.200q is not the log group of an install", d.Group)
	}
	if s, err = ParseStreamName(d.Stream); err != nil {
		return owner{}, s, err
	}
	o, err = x.owner(ctx, install, s)
	return o, s, err
}

func (x *Subscriber) ingest(ctx context.Context, group string, s joblog.Stream, runner string, pieces []Event) error {
	log := joblog.Budgeted{Log: x.Log, Runner: runner, Budget: x.Budget, Now: x.Now, OnCut: func(s joblog.Stream) {
		x.Logger.Warn("a log was cut: its runner has used up its budget of log bytes", "stream", s.String(), "runner", runner)
	}}
	err := Ingest(ctx, log, s, pieces)
	for attempt := range gapAttempts {
		if _, gap := errors.AsType[*joblog.OffsetError](err); !gap {
			return err
		}
		if err := retry.Sleep(ctx, gapPause<<attempt); err != nil {
			return err
		}
		err = Ingest(ctx, log, s, pieces)
	}
	if _, gap := errors.AsType[*joblog.OffsetError](err); !gap {
		return err
	}
	if err := x.Record(group).Repair(ctx, log, s); err != nil {
		return err
	}
	return Ingest(ctx, log, s, pieces)
}
