package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// largeAnswers are the routes of the runner API whose answers can come in parts. On the control API each answer can.
var largeAnswers = []string{wire.GetState.ID, wire.GetPlan.ID, wire.StartJob.ID, wire.GetValues.ID}

// ofPeople reports whether the route belongs to the control API.
func ofPeople(r wire.Route) bool { return strings.HasPrefix(r.Path, "/v1/") }

func takesParts(r wire.Route) bool { return ofPeople(r) || slices.Contains(largeAnswers, r.ID) }

// acceptedAnywhere is the size of a body, in bytes, that the front end of each control plane accepts.
const acceptedAnywhere = 1 << 20

// restages limits how often the client sends all parts of a body or repeats a request for an answer, if the control
// plane does not have the parts any more.
const restages = 3

// codeNotStaged is the code of the problem that the control plane does not have the parts of a body.
const codeNotStaged = "body-not-staged"

// whole sends the request and returns the answer with its whole body. It stages a large body of the request before,
// and gets a large body of the answer after.
func (c *Client) whole(ctx context.Context, k call) (*http.Response, []byte, error) {
	if k.in != nil {
		// The escapes of HTML would make each "<" of an output six times as large, and a report has a limit.
		var data bytes.Buffer
		enc := json.NewEncoder(&data)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(k.in); err != nil {
			return nil, nil, fmt.Errorf("%s: encode the request: %w", k.route.ID, err)
		}
		k.raw, k.kind = bytes.TrimSuffix(data.Bytes(), []byte("\n")), "application/json"
	}
	for try := 1; ; try++ {
		res, body, parts, err := c.inParts(ctx, k)
		lost := HasCode(err, codeNotStaged) || err == nil && res.StatusCode >= 300 && HasCode(problem(k.route.ID, res, body), codeNotStaged)
		if !parts || !lost || try == restages {
			return res, body, err
		}
	}
}

// inParts is one try of whole. parts reports whether one of the bodies was in parts.
func (c *Client) inParts(ctx context.Context, k call) (res *http.Response, body []byte, parts bool, err error) {
	most, err := c.maxBody(ctx, k)
	if err != nil {
		return nil, nil, false, err
	}
	if most > 0 && int64(len(k.raw)) > most {
		header, err := c.stage(ctx, k, int(most))
		if err != nil {
			return nil, nil, true, err
		}
		maps.Copy(header, k.header)
		k.raw, k.header, parts = []byte{}, header, true
	}
	res, body, err = c.exchange(ctx, k)
	if err != nil || res.StatusCode >= http.StatusMultipleChoices || res.Header.Get(wire.HeaderBodyDigest) == "" {
		return res, body, parts, err
	}
	body, err = c.parts(ctx, k, res.Header)
	return res, body, true, err
}

// maxBody returns the largest body that the front end accepts, in bytes, before it is staged; 0: every body. It asks the
// control plane only before a large request of a person.
func (c *Client) maxBody(ctx context.Context, k call) (int64, error) {
	switch {
	case k.route.ID == wire.StagePart.ID || k.route.ID == wire.UploadPart.ID:
		return 0, nil
	case !ofPeople(k.route):
		return c.most, nil
	case len(k.raw) <= acceptedAnywhere:
		return 0, nil
	}
	m, err := c.Meta(ctx)
	return m.MaxBody, err
}

// job returns the job whose attempt sends the request.
func (k call) job() string { return cmp.Or(k.path["job"], k.user) }

// StagePart stores a part of a body of size bytes, whose SHA-256 is digest, in hex. Parts count from 0.
func (c *Client) StagePart(ctx context.Context, job, digest string, part int, size int64, data []byte) error {
	_, err := c.do(ctx, call{route: wire.StagePart, path: vars{"job": job, "digest": digest, "part": strconv.Itoa(part)},
		query: url.Values{"size": {strconv.FormatInt(size, 10)}}, raw: data}, nil)
	return err
}

// GetPart returns a part of an answer.
func (c *Client) GetPart(ctx context.Context, job, digest string, part int) ([]byte, error) {
	return c.send(ctx, call{route: wire.GetPart, path: vars{"job": job, "digest": digest, "part": strconv.Itoa(part)}})
}

// stage sends the body of a call in parts of at most size bytes, and returns the headers that name it.
func (c *Client) stage(ctx context.Context, k call, size int) (map[string]string, error) {
	digest := fmt.Sprintf("%x", sha256.Sum256(k.raw))
	part := 0
	for b := range slices.Chunk(k.raw, size) {
		var err error
		if ofPeople(k.route) {
			err = c.UploadPart(ctx, digest, part, int64(len(k.raw)), b)
		} else {
			err = c.StagePart(ctx, k.job(), digest, part, int64(len(k.raw)), b)
		}
		if err != nil {
			return nil, err
		}
		part++
	}
	return map[string]string{wire.HeaderBodyDigest: digest, wire.HeaderBodySize: strconv.Itoa(len(k.raw))}, nil
}

// UploadPart is StagePart for people.
func (c *Client) UploadPart(ctx context.Context, digest string, part int, size int64, data []byte) error {
	_, err := c.do(ctx, call{route: wire.UploadPart, path: vars{"digest": digest, "part": strconv.Itoa(part)}, query: url.Values{"size": {strconv.FormatInt(size, 10)}}, raw: data}, nil)
	return err
}

// DownloadPart is GetPart for people.
func (c *Client) DownloadPart(ctx context.Context, digest string, part int) ([]byte, error) {
	return c.send(ctx, call{route: wire.DownloadPart, path: vars{"digest": digest, "part": strconv.Itoa(part)}})
}

// part gets a part of the answer to a call.
func (c *Client) part(ctx context.Context, k call, digest string, part int) ([]byte, error) {
	if ofPeople(k.route) {
		return c.DownloadPart(ctx, digest, part)
	}
	return c.GetPart(ctx, k.job(), digest, part)
}

// parts gets the body that the headers of an answer name.
func (c *Client) parts(ctx context.Context, k call, header http.Header) ([]byte, error) {
	digest := header.Get(wire.HeaderBodyDigest)
	size, err := strconv.ParseInt(header.Get(wire.HeaderBodySize), 10, 64)
	if err != nil || size < 0 || size > limit(k.route) {
		return nil, fmt.Errorf("%s: the answer's body of %q bytes is invalid or larger than %d bytes", k.route.ID, header.Get(wire.HeaderBodySize), limit(k.route))
	}
	var data bytes.Buffer
	data.Grow(int(size))
	for part := 0; int64(data.Len()) < size; part++ {
		b, err := c.part(ctx, k, digest, part)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 || int64(data.Len()+len(b)) > size {
			return nil, fmt.Errorf("%s: the parts of the answer have another size than it", k.route.ID)
		}
		data.Write(b)
	}
	if fmt.Sprintf("%x", sha256.Sum256(data.Bytes())) != digest {
		return nil, fmt.Errorf("%s: the parts of the answer have another digest than it", k.route.ID)
	}
	return data.Bytes(), nil
}

// StateAnswer is an answer of the routes of Terraform's http backend, which a tool understands.
type StateAnswer struct {
	Status int
	Kind   string // Content-Type
	Body   []byte

	problem error
}

// Problem returns the *Error of an answer with an error status, or nil.
func (a StateAnswer) Problem() error { return a.problem }

// State sends a request of a tool's http backend, whose path is that of the job's state or of its lock, and returns the
// control plane's answer, also a refusal. It returns an *Error for a failure that can pass, and if another server answers. body is
// the body of r. The client's token must be a lease token.
func (c *Client) State(r *http.Request, job string, body []byte) (StateAnswer, error) {
	route := wire.PutState
	if r.Method == http.MethodGet {
		route = wire.GetState
	}
	route.Method, route.Path = r.Method, r.URL.Path
	k := call{route: route, query: r.URL.Query(), user: job, kind: r.Header.Get("Content-Type"), header: map[string]string{"Content-MD5": r.Header.Get("Content-MD5")}}
	if len(body) > 0 {
		k.raw = body
	}
	res, data, err := c.whole(r.Context(), k)
	if err != nil {
		return StateAnswer{}, err
	}
	a := StateAnswer{Status: res.StatusCode, Kind: res.Header.Get("Content-Type"), Body: data}
	if res.StatusCode >= 300 && res.StatusCode != http.StatusLocked { // the body of status 423 is the lock info of another job
		e := problem(route.ID, res, data)
		if !Refused(e) {
			return StateAnswer{}, e
		}
		a.problem = e
	}
	return a, nil
}
