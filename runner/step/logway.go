package step

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/runner/internal/logship"
)

// logWay is a transport of a job's log to the control plane.
type logWay interface {
	// append stores data at offset; see logship.Append.
	append(ctx context.Context, offset int64, data []byte) (next int64, err error)
	// end closes the log after all of it was sent.
	end(ctx context.Context, e wire.LogEnd) error
}

// viaAPI appends through the runner API. The report carries the log's end.
type viaAPI struct{ log logship.Append }

func (v viaAPI) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	return v.log(ctx, offset, data)
}
func (viaAPI) end(context.Context, wire.LogEnd) error { return nil }

// viaCloudWatch writes the log to CloudWatch Logs. The control plane indexes it from there.
type viaCloudWatch struct {
	transport *cloudwatch.Transport
	stream    joblog.Stream
}

func (v viaCloudWatch) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	if err := v.transport.Put(ctx, v.stream, offset, data); err != nil {
		return 0, err
	}
	return offset + int64(len(data)), nil
}

func (v viaCloudWatch) end(ctx context.Context, e wire.LogEnd) error {
	return v.transport.End(ctx, joblog.Info{Stream: v.stream, Size: e.Size, CRC32: e.CRC32, Ended: true, Truncated: e.Truncated})
}

// detour uses the first transport until it fails, and the second from then on. If the first lost accepted bytes, the
// second requests them again by offset: this disk has the whole log.
type detour struct {
	first, then logWay
	left, works atomic.Bool // the first has failed; the first has worked once
	tell        func(error)
}

// proveWithin bounds the first append over the first transport. The AWS client retries for a minute when it is throttled,
// and would also do so without a route to CloudWatch.
const proveWithin = 10 * time.Second

func (d *detour) append(ctx context.Context, offset int64, data []byte) (int64, error) {
	if d.left.Load() {
		return d.then.append(ctx, offset, data)
	}
	first, cancel := ctx, context.CancelFunc(func() {})
	if !d.works.Load() {
		first, cancel = context.WithTimeout(ctx, proveWithin)
	}
	defer cancel()
	next, err := d.first.append(first, offset, data)
	if err == nil || ctx.Err() != nil {
		d.works.Store(err == nil || d.works.Load())
		return next, err
	}
	d.left.Store(true)
	d.tell(err)
	return d.then.append(ctx, offset, data)
}

func (d *detour) end(ctx context.Context, e wire.LogEnd) error {
	if d.left.Load() {
		return d.then.end(ctx, e)
	}
	return d.first.end(ctx, e)
}

// logWay returns the transport that the start's answer grants.
func (a *execution) logWay(ctx context.Context, c *client.Client, access *wire.LogAccess, hide func(string)) logWay {
	api := viaAPI{a.append(c)}
	if access == nil {
		return api
	}
	tell := func(err error) {
		a.Log.Warn("the log cannot be written to CloudWatch; it goes through the API", "job", a.in.Job, "err", err)
	}
	keys := &logKeys{client: c, job: string(a.in.Job), now: a.Now, hide: hide, last: *access}
	hide(access.SecretAccessKey)
	hide(access.SessionToken)
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(access.Region), awsconfig.WithCredentialsProvider(keys),
		awsconfig.WithHTTPClient(&http.Client{Transport: a.Transport}))
	if err != nil {
		tell(err)
		return api
	}
	cfg.Credentials = keys // without the SDK's cache: logKeys caches them
	return &detour{first: viaCloudWatch{transport: cloudwatch.NewTransport(cfg, access.Group, a.Now),
		stream: joblog.Stream{Job: string(a.in.Job), Epoch: a.in.Epoch}}, then: api, tell: tell}
}

// keysLeft is how long before their expiry the log's credentials are replaced. A throttled put retries for about a minute
// with the credentials it started with.
const keysLeft = 3 * time.Minute

// logKeys holds the credentials for the log of one attempt. The first came with the job; the lease token buys the next.
type logKeys struct {
	client *client.Client
	job    string
	now    func() time.Time
	hide   func(string)

	mu   sync.Mutex
	last wire.LogAccess
}

// Retrieve implements aws.CredentialsProvider.
func (k *logKeys) Retrieve(ctx context.Context) (aws.Credentials, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.last.ExpiresAt.Sub(k.now()); left <= keysLeft {
		fresh, err := k.client.RenewLogAccess(ctx, k.job)
		switch {
		case err == nil && fresh.Group == k.last.Group:
			k.hide(fresh.SecretAccessKey)
			k.hide(fresh.SessionToken)
			k.last = fresh
		case err == nil:
			return aws.Credentials{}, errors.New("the job's log is in another log group now")
		case left <= 0:
			return aws.Credentials{}, fmt.Errorf("renew access to the log: %w", err)
		}
	}
	return aws.Credentials{AccessKeyID: k.last.AccessKeyID, SecretAccessKey: k.last.SecretAccessKey, SessionToken: k.last.SessionToken,
		CanExpire: true, Expires: k.last.ExpiresAt, Source: "fairlead lease"}, nil
}
