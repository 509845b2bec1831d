package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// digestForm matches a SHA-256 in hex.
var digestForm = pattern.New(`^[0-9a-f]{64}$`)

// maxPart is the largest part of a staged body, in bytes.
const maxPart = 4 << 20

// PartPath names a part of a staged body.
type PartPath struct {
	Digest string `path:"digest" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the whole body, in hex"`
	Part   int    `path:"part" minimum:"0" maximum:"100000" doc:"Number of the part; the first is 0"`
}

// partToken is a lease token, or the launch token that bought it: the answer to the launch token can come in parts too.
var partToken = scheme{name: leaseToken.name, http: leaseToken.http, doc: leaseToken.doc,
	find: func(_ context.Context, s *server, token string, job fairlead.JobID) (caller, error) {
		h, err := s.attemptOf(token, job)
		return caller{holder: h}, err
	}}

// attemptOf returns the attempt of a lease token or a launch token. job is "" if the path names none.
func (s *server) attemptOf(token string, job fairlead.JobID) (control.Holder, error) {
	return s.Control.AuthenticateJob(token, job, identity.Lease, identity.Launch)
}

func (s *server) partRoutes(c *control.Control) {
	type put struct {
		JobPath
		PartUpload
	}
	register(s, op{Route: wire.StagePart, auth: leaseToken, may: byCredential(), tag: "Steps", summary: "Store a part of a body that is too large for one request", status: http.StatusNoContent,
		doc: "The parts change nothing. A later request of the attempt has no body, and the headers " + wire.HeaderBodyDigest + " and " + wire.HeaderBodySize + " name the whole body. " +
			"Parts that no request can name any more are deleted.",
		body: maxPart, read: 30 * time.Second, problems: slices.Concat(ofAStep, codes{fairlead.CodeBodyNotStaged})},
		func(ctx context.Context, in *put) (*struct{}, error) {
			return nil, in.stage(ctx, c)
		})
	type get struct {
		JobPath
		PartPath
	}
	register(s, op{Route: wire.GetPart, auth: partToken, may: byCredential(), tag: "Steps", summary: "Get a part of an answer that is too large for one answer",
		doc:      "An answer without a body names the whole body with the headers " + wire.HeaderBodyDigest + " and " + wire.HeaderBodySize + ". Only a request with the header " + wire.HeaderAcceptParts + " gets such an answer.",
		problems: slices.Concat(ofAStep, codes{fairlead.CodeBodyNotStaged})},
		func(ctx context.Context, in *get) (*part, error) { return in.open(ctx, c) })
}

// personPartRoutes registers the routes of parts for people.
func (s *server) personPartRoutes(c *control.Control) {
	register(s, op{Route: wire.UploadPart, auth: apiToken, may: eachCaller(), tag: "Parts", summary: "Store a part of a body that is too large for one request", status: http.StatusNoContent,
		doc: "Only for a control plane whose description has max_body. The parts change nothing. A later request with the same token has no body, and the headers " + wire.HeaderBodyDigest + " and " +
			wire.HeaderBodySize + " name the whole body. Parts that no request has named are deleted within a day.",
		body: maxPart, read: 30 * time.Second, problems: codes{fairlead.CodeBodyNotStaged}},
		func(ctx context.Context, in *PartUpload) (*struct{}, error) { return nil, in.stage(ctx, c) })
	register(s, op{Route: wire.DownloadPart, auth: apiToken, may: eachCaller(), tag: "Parts", summary: "Get a part of an answer that is too large for one answer",
		doc: "An answer without a body names the whole body with the headers " + wire.HeaderBodyDigest + " and " + wire.HeaderBodySize + ". Only a request with the header " + wire.HeaderAcceptParts +
			" gets such an answer. Each part except the last has the size of the first. Only the token of the request gets the parts.",
		problems: codes{fairlead.CodeBodyNotStaged}},
		func(ctx context.Context, in *PartPath) (*part, error) { return in.open(ctx, c) })
}

// PartUpload is a part to be stored.
type PartUpload struct {
	PartPath
	Size    int64  `query:"size" minimum:"1" required:"true" doc:"Bytes of the whole body"`
	RawBody []byte `contentType:"application/octet-stream"`
}

func (in *PartUpload) stage(ctx context.Context, c *control.Control) error {
	if in.Size > control.MaxState {
		return tooLarge(in.Size, control.MaxState)
	}
	return c.StagePart(ctx, callerOf(ctx).stager(), control.Staged{Digest: in.Digest, Size: in.Size}, in.Part, in.RawBody)
}

// part is an answer with a part.
type part struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (in *PartPath) open(ctx context.Context, c *control.Control) (*part, error) {
	data, err := c.StagedPart(ctx, callerOf(ctx).stager(), in.Digest, in.Part)
	return &part{ContentType: "application/octet-stream", Body: data}, err
}

// largeAnswers are the routes of the runner API whose answers can be larger than a front end accepts: a spec contains the
// job's variables, and values are the sensitive ones. On the control API an answer of each route can: outputs, inputs and lists have no other limit.
var largeAnswers = []string{wire.GetPlan.ID, wire.GetState.ID, wire.StartJob.ID, wire.GetValues.ID}

func tooLarge(size, limit int64) error {
	return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeBodyTooLarge,
		Message: "the body has " + bytesOf(size) + ", more than " + bytesOf(limit)}
}

// staged returns the staged body that the headers of a request name. ok is false if they name none. done
// deletes the parts; the caller calls it after the request has succeeded.
func (s *server) staged(ctx context.Context, by control.Stager, header func(string) string, limit int64) (data []byte, done func(), ok bool, err error) {
	digest := header(wire.HeaderBodyDigest)
	if digest == "" || by == (control.Stager{}) {
		return nil, func() {}, false, nil
	}
	size, err := strconv.ParseInt(header(wire.HeaderBodySize), 10, 64)
	switch {
	case err != nil || size < 1 || !digestForm.MatchString(digest):
		return nil, nil, true, fairlead.Invalid(fairlead.CodeMalformedRequest, "the headers %s and %s name no body", wire.HeaderBodyDigest, wire.HeaderBodySize)
	case size > limit:
		return nil, nil, true, tooLarge(size, limit)
	}
	data, keys, err := s.Control.StagedBody(ctx, by, control.Staged{Digest: digest, Size: size})
	return data, func() { s.Control.DropBlobs(ctx, keys) }, true, err
}

// inParts stages an answer that is too large for the front end, if the client gets it in parts. The answers of
// next are not streams.
func (s *server) inParts(next http.HandlerFunc) http.HandlerFunc {
	if s.MaxBody == 0 {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.HeaderAcceptParts) == "" {
			next(w, r)
			return
		}
		b := &answerBuffer{ResponseWriter: w, status: http.StatusOK}
		next(b, r)
		if b.status < http.StatusMultipleChoices && b.body.Len() > s.MaxBody {
			err := s.stageAnswer(r, w.Header(), b.body.Bytes())
			if err != nil {
				writeProblem(w, s.fail(r.Context(), "stage an answer", err))
				return
			}
			b.body.Reset()
		}
		w.WriteHeader(b.status)
		_, _ = w.Write(b.body.Bytes()) // the client may be gone
	}
}

func (s *server) stageAnswer(r *http.Request, header http.Header, data []byte) error {
	token := bearer(r.Header.Get("Authorization"))
	if _, password, ok := r.BasicAuth(); ok {
		token = password
	}
	by, err := s.stager(r.Context(), token) // next has accepted the token
	if err != nil {
		return err
	}
	staged, err := s.Control.StageAnswer(r.Context(), by, data, s.MaxBody)
	if err != nil {
		return err
	}
	header.Del("Content-Length")
	header.Set(wire.HeaderBodyDigest, staged.Digest)
	header.Set(wire.HeaderBodySize, strconv.FormatInt(staged.Size, 10))
	return nil
}

// answerBuffer keeps an answer.
type answerBuffer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader keeps the status.
func (b *answerBuffer) WriteHeader(status int) { b.status = status }

// Write keeps the bytes.
func (b *answerBuffer) Write(p []byte) (int, error) { return b.body.Write(p) }

// Unwrap returns the wrapped writer for http.ResponseController.
func (b *answerBuffer) Unwrap() http.ResponseWriter { return b.ResponseWriter }
