package step

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/cancelmark"
)

const (
	// lookEvery is the time between two looks for the cancel marker. With the write of the marker, a
	// second until a read of DynamoDB sees it, and the renewal that follows, a cancellation reaches the
	// tool within 3 s.
	lookEvery = 1500 * time.Millisecond
	// lookTimeout bounds one look. DynamoDB answers within milliseconds.
	lookTimeout = 2 * time.Second
	// maxLookPause is the longest time between two looks that fail. Some networks block DynamoDB.
	// There a cancellation arrives with the answer to a renewal.
	maxLookPause = time.Minute
)

// watchMarker looks for the attempt's cancel marker until ctx ends or the marker exists. Then it
// sends one value on the returned channel, which makes the lease's next renewal due. It returns
// nil if the attempt has no marker, or if this program cannot read markers.
func (a *execution) watchMarker(ctx context.Context, started wire.Started, credentials *logCredentials) <-chan struct{} {
	if started.Cancel == nil || credentials == nil || a.FindMarker == nil {
		return nil
	}
	exists := a.FindMarker(Marker{Place: cancelmark.Place(*started.Cancel), Region: started.Log.Region, Credentials: credentials.current,
		HTTP: &http.Client{Transport: a.Transport}, Now: a.Now})
	found := make(chan struct{}, 1)
	go a.look(ctx, exists, found)
	return found
}

func (a *execution) look(ctx context.Context, exists func(context.Context) (bool, error), found chan<- struct{}) {
	pause, failed := lookEvery, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		ok, err := exists(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failed {
				a.Log.Warn("cannot look for a cancellation; it arrives with the renewal of the lease", "job", a.in.Job, "err", err)
			}
			failed, pause = true, min(2*pause, maxLookPause)
		case ok:
			found <- struct{}{}
			return // the lease keeps asking: the answer to its renewal decides
		default:
			failed, pause = false, lookEvery
		}
	}
}
