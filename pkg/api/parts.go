package api

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// digestForm matches a SHA-256 in hex.
var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// maxPart is the largest part of a staged body, in bytes.
const maxPart = 4 << 20

// PartPath names a part of a staged body.
type PartPath struct {
	JobPath
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
		PartPath
		Size    int64  `query:"size" minimum:"1" required:"true" doc:"Bytes of the whole body"`
		RawBody []byte `contentType:"application/octet-stream"`
	}
	register(s, op{Route: wire.StagePart, auth: leaseToken, tag: "Steps", summary: "Store a part of a body that is too large for one request", status: http.StatusNoContent,
		doc: "The parts change nothing. A later request of the attempt has no body, and the headers " + wire.HeaderBodyDigest + " and " + wire.HeaderBodySize + " name the whole body. " +
			"Parts that no request can name any more are deleted.",
		body: maxPart, read: 30 * time.Second, problems: ofAStep},
		func(ctx context.Context, in *put) (*struct{}, error) {
			if in.Size > control.MaxState {
				return nil, tooLarge(in.Size, control.MaxState)
			}
			return nil, c.StagePart(ctx, callerOf(ctx).holder, in.Digest, in.Part, in.RawBody)
		})
	type part struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
	register(s, op{Route: wire.GetPart, auth: partToken, tag: "Steps", summary: "Get a part of an answer that is too large for one answer",
		doc:      "An answer without a body names the whole body with the headers " + wire.HeaderBodyDigest + " and " + wire.HeaderBodySize + ". Only a request with the header " + wire.HeaderAcceptParts + " gets such an answer.",
		problems: slices.Concat(ofAStep, codes{fairlead.CodeBodyNotStaged})},
		func(ctx context.Context, in *PartPath) (*part, error) {
			data, err := c.StagedPart(ctx, callerOf(ctx).holder, in.Digest, in.Part)
			return &part{ContentType: "application/octet-stream", Body: data}, err
		})
}

// largeAnswers are the routes whose answers can be larger than a front end accepts: a spec contains the job's variables.
var largeAnswers = []string{wire.GetPlan.ID, wire.GetState.ID, wire.StartJob.ID}

func tooLarge(size, limit int64) error {
	return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeBodyTooLarge,
		Message: "the body has " + bytesOf(size) + ", more than " + bytesOf(limit)}
}

// staged returns the staged body that the headers of a request name. ok is false if they name none. done
// deletes the parts; the caller calls it after the request has succeeded.
func (s *server) staged(ctx context.Context, h control.Holder, header func(string) string, limit int64) (data []byte, done func(), ok bool, err error) {
	digest := header(wire.HeaderBodyDigest)
	if digest == "" || h.Job == "" {
		return nil, func() {}, false, nil
	}
	size, err := strconv.ParseInt(header(wire.HeaderBodySize), 10, 64)
	switch {
	case err != nil || size < 1 || !digestForm.MatchString(digest):
		return nil, nil, true, fairlead.Invalid(fairlead.CodeMalformedRequest, "the headers %s and %s name no body", wire.HeaderBodyDigest, wire.HeaderBodySize)
	case size > limit:
		return nil, nil, true, tooLarge(size, limit)
	}
	data, keys, err := s.Control.StagedBody(ctx, h, control.Staged{Digest: digest, Size: size})
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
		if b.status == http.StatusOK && b.body.Len() > s.MaxBody {
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
	h, err := s.attemptOf(token, "") // next has accepted the token
	if err != nil {
		return err
	}
	staged, err := s.Control.StageAnswer(r.Context(), h, data, s.MaxBody)
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
