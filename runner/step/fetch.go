package step

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/artifact/fetch"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/plugin"
)

// fetchTimeout bounds the transfer of one artifact.
const fetchTimeout = 5 * time.Minute

// artifactsFolder is the cache of fetched artifacts, below the runner's data folder. The plan job fetches an artifact, and
// the apply job usually finds it in the cache.
const artifactsFolder = "artifacts"

// fetcher returns a function that pulls artifacts from the registry that the control plane names. If this is the control
// plane's own registry, the function logs in with the lease token and reuses the connection that started the job.
func (a *execution) fetcher(c *client.Client, token string, hide func(string)) func(context.Context, events.ArtifactRef, *os.Root) (string, error) {
	return func(ctx context.Context, ref events.ArtifactRef, dst *os.Root) (string, error) {
		bounded, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		host := a.registryHost()
		name := host + "/" + strings.TrimPrefix(ref.Repository, host+"/") + "@" + ref.Digest
		folder, err := fetch.Puller{
			Login: func(ctx context.Context) (fetch.Login, error) { return a.registryLogin(ctx, c, token, hide) },
			// If the customer allows a control plane without TLS, the token was already sent in clear.
			PlainHTTP: a.plainRegistry(),
			TLS:       strings.HasPrefix(a.in.URL, "https://"),
			Transport: a.Transport,
			Cache:     &fetch.Cache{Dir: filepath.Join(a.in.Data, artifactsFolder)},
		}.Pull(bounded, name, dst, fetch.Limits{})
		if err == nil {
			return folder, nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("fetch artifact: %w", ctx.Err())
		}
		reason, why := fairlead.ReasonArtifactUnavailable, err.Error()
		if e, ok := errors.AsType[*fairlead.Error](err); ok {
			why = strings.TrimSpace(e.Message + ". " + e.Hint) // the error's cause is only for logs
		}
		switch fairlead.KindOf(err) {
		case fairlead.KindNotFound:
			reason = fairlead.ReasonArtifactMissing
		case fairlead.KindInvalid, fairlead.KindTooLarge:
			reason = fairlead.ReasonArtifactInvalid
		}
		return "", &plugin.Error{Reason: reason, Message: "the component's source cannot be fetched: " + why, Err: err}
	}
}

// registryHost returns the host of the control plane's registry.
func (a *execution) registryHost() string {
	host := a.in.Registry
	for _, scheme := range []string{"https://", "http://"} {
		host = strings.TrimPrefix(host, scheme)
	}
	return strings.TrimSuffix(host, "/")
}

// plainRegistry reports whether the registry may be without TLS on another machine.
func (a *execution) plainRegistry() bool {
	return a.in.PlainHTTP && strings.HasPrefix(a.in.URL, "http://")
}

// registryLogin returns the login of the job to the control plane's registry: the lease token, or a login to another
// registry that the control plane gives for it.
func (a *execution) registryLogin(ctx context.Context, c *client.Client, token string, hide func(string)) (fetch.Login, error) {
	if u, err := url.Parse(a.in.URL); err == nil && u.Host == a.registryHost() {
		return fetch.Login{Token: token}, nil
	}
	// The client's own repetitions take seconds, and a restart of the control plane on a busy machine takes longer.
	l, err := retry.Do(ctx, a.quick(startRetryTime), func(ctx context.Context) (wire.RegistryLogin, error) {
		return c.PullLogin(ctx, string(a.in.Job))
	})
	if client.HasCode(err, fairlead.CodeNoPullLogin) { // the control plane's own registry under another name
		return fetch.Login{Token: token}, nil
	}
	hide(l.Password)
	return fetch.Login{Username: l.Username, Password: l.Password}, err
}

// pusher returns a function that pushes artifacts to the registry that the control plane names.
func (a *execution) pusher(c *client.Client, token string, hide func(string)) func(context.Context, string, *artifact.Artifact) (string, error) {
	return func(ctx context.Context, repository string, packed *artifact.Artifact) (digest string, err error) {
		err = a.push(ctx, c, token, hide, fetchTimeout, func(ctx context.Context, access artifact.Access) error {
			digest, err = artifact.Push(ctx, a.inRegistry(repository), access, packed)
			return err
		})
		return digest, err
	}
}

// imageTimeout bounds the transfer of one image.
const imageTimeout = 30 * time.Minute

// imagePusher returns a function that pushes images to the registry that the control plane names.
func (a *execution) imagePusher(c *client.Client, token string, hide func(string)) func(context.Context, string, string, string, []artifact.Statement) error {
	return func(ctx context.Context, repository, layout, digest string, statements []artifact.Statement) error {
		return a.push(ctx, c, token, hide, imageTimeout, func(ctx context.Context, access artifact.Access) error {
			if err := artifact.PushImage(ctx, a.inRegistry(repository), access, layout, digest); err != nil {
				return err
			}
			return artifact.Attach(ctx, a.inRegistry(repository), access, digest, statements...)
		})
	}
}

// attachProvenance makes the signed provenance of a built image a referrer of the image, in the registry that has it.
func (a *execution) attachProvenance(ctx context.Context, c *client.Client, token string, hide func(string), repository, digest string, envelope []byte) error {
	return a.push(ctx, c, token, hide, fetchTimeout, func(ctx context.Context, access artifact.Access) error {
		return artifact.Attach(ctx, a.inRegistry(repository), access, digest, artifact.SignedProvenance(envelope))
	})
}

// inRegistry returns the name of a repository with the host of its registry.
func (a *execution) inRegistry(repository string) string {
	host := a.registryHost()
	return host + "/" + strings.TrimPrefix(repository, host+"/")
}

// push calls send with the job's login to the registry, and returns the error of a job.
func (a *execution) push(ctx context.Context, c *client.Client, token string, hide func(string), limit time.Duration, send func(context.Context, artifact.Access) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	login, err := a.registryLogin(bounded, c, token, hide)
	if err == nil {
		err = send(bounded, artifact.Access{Token: login.Token, Username: login.Username, Password: login.Password, PlainHTTP: a.plainRegistry(), Transport: a.Transport})
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("push artifact: %w", ctx.Err())
	}
	why := err.Error()
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		why = strings.TrimSpace(e.Message + ". " + e.Hint) // the error's cause is only for logs
	}
	return &plugin.Error{Reason: fairlead.ReasonArtifactUnavailable, Message: "the artifact cannot be pushed: " + why, Err: err}
}
