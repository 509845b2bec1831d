package step

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/runner/internal/logship"
)

// logTransport carries a job's log to the control plane.
type logTransport interface {
	// append stores data at offset; see logship.Append.
	append(ctx context.Context, offset int64, data []byte) (next int64, err error)
	// end closes the log after all of it was sent.
	end(ctx context.Context, e wire.LogEnd) error
	// withReport reports whether the job's report may bring the last bytes of the log.
	withReport() bool
}

// apiTransport appends through the runner API. It does not send the end of the log, because the job's report contains the
// end.
type apiTransport struct{ log logship.Append }

func (v apiTransport) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	return v.log(ctx, offset, data)
}
func (apiTransport) end(context.Context, wire.LogEnd) error { return nil }
func (apiTransport) withReport() bool                       { return true }

// directTransport writes the log to CloudWatch Logs. The control plane reads the log there and indexes it.
type directTransport struct {
	to     DirectLog
	stream joblog.Stream
}

func (v directTransport) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	if err := v.to.Put(ctx, v.stream, offset, data); err != nil {
		return 0, err
	}
	return offset + int64(len(data)), nil
}

func (v directTransport) end(ctx context.Context, e wire.LogEnd) error {
	return v.to.End(ctx, joblog.Info{Stream: v.stream, Size: e.Size, CRC32: e.CRC32, Ended: true, Truncated: e.Truncated})
}

func (directTransport) withReport() bool { return false }

// fallbackTransport uses the primary transport until the primary fails. After that it uses the secondary transport. If the
// primary lost bytes that it had accepted, the secondary requests these bytes by their offset: this disk has the whole log.
type fallbackTransport struct {
	primary, secondary logTransport
	failed, proven     atomic.Bool // failed: the primary has failed; proven: the primary has worked once
	warn               func(error) // called with the primary's error when it fails
}

// firstAppendTimeout bounds the first append over the primary transport. The AWS client retries for a minute when it is
// throttled. Without this limit it would also retry for a minute if the network has no route to CloudWatch.
const firstAppendTimeout = 10 * time.Second

func (d *fallbackTransport) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	if d.failed.Load() {
		return d.secondary.append(ctx, offset, data)
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !d.proven.Load() {
		bounded, cancel = context.WithTimeout(ctx, firstAppendTimeout)
	}
	defer cancel()
	next, err := d.primary.append(bounded, offset, data)
	if err == nil || ctx.Err() != nil {
		d.proven.Store(err == nil || d.proven.Load())
		return next, err
	}
	d.failed.Store(true)
	d.warn(err)
	return d.secondary.append(ctx, offset, data)
}

func (d *fallbackTransport) end(ctx context.Context, e wire.LogEnd) error {
	if d.failed.Load() {
		return d.secondary.end(ctx, e)
	}
	return d.primary.end(ctx, e)
}

func (d *fallbackTransport) withReport() bool {
	if d.failed.Load() {
		return d.secondary.withReport()
	}
	return d.primary.withReport()
}

// newLogTransport returns the transport that the control plane's answer to the start request permits: CloudWatch with the
// API as fallback, or only the API.
func (a *execution) newLogTransport(ctx context.Context, c *client.Client, access *wire.LogAccess, credentials *logCredentials) logTransport {
	api := apiTransport{a.append(c)}
	if access == nil || a.OpenLog == nil {
		return api
	}
	warn := func(err error) {
		a.Log.Warn("cannot write the log to CloudWatch; the step sends it through the API", "job", a.in.Job, "err", err)
	}
	to, err := a.OpenLog(ctx, LogPlace{Region: access.Region, Group: access.Group, Credentials: credentials.current, HTTP: &http.Client{Transport: a.Transport}, Now: a.Now})
	if err != nil {
		warn(err)
		return api
	}
	return &fallbackTransport{primary: directTransport{to: to, stream: joblog.Stream{Job: string(a.in.Job), Epoch: a.in.Epoch}}, secondary: api, warn: warn}
}

// credentialsMargin is how long before their expiry the log's credentials are renewed. A throttled put retries for about a
// minute with the credentials it started with.
const credentialsMargin = 3 * time.Minute

// newLogCredentials returns the credentials of access; nil: the attempt has none.
func (a *execution) newLogCredentials(c *client.Client, access *wire.LogAccess, hide func(string)) *logCredentials {
	if access == nil {
		return nil
	}
	hide(access.SecretAccessKey)
	hide(access.SessionToken)
	return &logCredentials{client: c, job: string(a.in.Job), now: a.Now, hide: hide, last: *access}
}

// logCredentials holds the AWS credentials for the log and the cancel marker of one attempt. The first credentials came with the job. The step
// requests later credentials with its lease token. Safe for concurrent use.
type logCredentials struct {
	client *client.Client
	job    string
	now    func() time.Time
	hide   func(string)

	mu   sync.Mutex
	last wire.LogAccess
}

// current returns credentials that are still valid. If a renewal fails, it returns the last credentials until they expire.
func (k *logCredentials) current(ctx context.Context) (wire.CloudAccess, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.last.ExpiresAt.Sub(k.now()); left <= credentialsMargin {
		renewed, err := k.client.RenewLogAccess(ctx, k.job)
		switch {
		case err == nil && renewed.Group == k.last.Group:
			k.hide(renewed.SecretAccessKey)
			k.hide(renewed.SessionToken)
			k.last = renewed
		case err == nil:
			return wire.CloudAccess{}, errors.New("the job's log is in another log group now")
		case left <= 0:
			return wire.CloudAccess{}, fmt.Errorf("renew access to the log: %w", err)
		}
	}
	return k.last.CloudAccess, nil
}
