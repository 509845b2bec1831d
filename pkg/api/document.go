package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// codesExtension is the OpenAPI extension that lists the types of problems that an
// operation may answer with.
const codesExtension = "x-fairlead-problems"

// ruleExtension and rightsExtension are the OpenAPI extensions that show who may call an operation: the kind of its rule, and
// the rights that the caller's roles must permit.
const (
	ruleExtension   = "x-fairlead-rule"
	rightsExtension = "x-fairlead-rights"
)

type codes = []fairlead.Code

// The problems that routes have in common. Each route adds its own problems. These
// slices are never changed.
var (
	everyRoute  = codes{fairlead.CodeInternal, fairlead.CodeInterrupted, fairlead.CodeStoreUnavailable, fairlead.CodeTooManyConflicts, fairlead.CodeDataBusy, fairlead.CodeDataIO, fairlead.CodeDataReadOnly, fairlead.CodeDiskFull}
	inputRoute  = codes{fairlead.CodeMalformedRequest, fairlead.CodeInvalidRequest}
	bodyRoute   = codes{fairlead.CodeBodyTooLarge, fairlead.CodeRequestTimeout, fairlead.CodeUnsupportedMediaType}
	creator     = codes{fairlead.CodeIdempotencyKeyReused}
	counted     = codes{fairlead.CodeQuotaReached} // routes that create an item of which an org may have a limited number
	listing     = codes{fairlead.CodeBadCursor}
	storesMuch  = codes{fairlead.CodeRecordTooLarge, fairlead.CodeCommitTooLarge}
	ofACaller   = codes{fairlead.CodeTooManyRequests, fairlead.CodeTooManyAtOnce, fairlead.CodeTooManyWrongTokens}
	ofAVersion  = codes{fairlead.CodeVersionAltered}
	ofAStep     = codes{fairlead.CodeStaleEpoch, fairlead.CodeJobNotFound}
	ofAState    = codes{fairlead.CodeStaleEpoch, fairlead.CodeJobNotFound, fairlead.CodeOtherState}
	writesState = slices.Concat(ofAState, codes{fairlead.CodeStateLocked, fairlead.CodeStateNotLocked})
)

// problemsOf returns the codes of the problems that a route with this input type
// may answer with.
func problemsOf(o op, input reflect.Type) codes {
	all := slices.Concat(everyRoute, o.problems, deniedBy(o.may, input))
	if input.NumField() > 0 {
		all = append(all, inputRoute...)
	}
	if hasBody(input) {
		all = append(all, bodyRoute...)
	}
	if waits(input) {
		all = append(all, fairlead.CodeTooManyWaits)
	}
	if o.auth.find != nil {
		all = append(append(all, fairlead.CodeUnauthenticated), ofACaller...)
	}
	if slices.ContainsFunc(all, func(code fairlead.Code) bool { return statusOfCode(code) == http.StatusUnauthorized }) {
		all = append(all, fairlead.CodeTooManyWrongTokens)
	}
	if o.auth.name == launchToken.name || o.auth.name == leaseToken.name {
		all = append(all, fairlead.CodeOtherJob)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func responsesOf(a huma.API, of codes) map[string]*huma.Response {
	out := map[string]*huma.Response{}
	for _, code := range of {
		status := strconv.Itoa(statusOfCode(code))
		out[status] = &huma.Response{Ref: "#/components/responses/" + problemResponse(a, status)}
	}
	return out
}

// problemResponse returns the name of the document's component that describes the
// problems of a status, and adds the component if it is missing.
func problemResponse(a huma.API, status string) string {
	c := a.OpenAPI().Components
	if c.Responses == nil {
		c.Responses = map[string]*huma.Response{}
		c.Headers = map[string]*huma.Header{
			"RequestId": {Description: "Names the request in the server's log", Schema: &huma.Schema{Type: huma.TypeString}},
			"Protocol":  {Description: "Version of the protocol", Schema: &huma.Schema{Type: huma.TypeString}},
		}
	}
	name := "Problem" + status
	if c.Responses[name] == nil {
		n, _ := strconv.Atoi(status)
		schema := c.Schemas.Schema(reflect.TypeFor[wire.Problem](), true, "Problem")
		r := &huma.Response{Description: http.StatusText(n), Content: map[string]*huma.MediaType{problemContent: {Schema: schema}}}
		describeHeaders(r)
		if n == http.StatusTooManyRequests {
			r.Headers["Retry-After"] = &huma.Param{Description: "Seconds after which to repeat the request", Schema: &huma.Schema{Type: huma.TypeInteger}}
		}
		c.Responses[name] = r
	}
	return name
}

// undescribed is the only answer that a route has before describe. Without any, huma would describe its own form of errors.
const undescribed = "default"

// describe completes huma's description of a registered route with this input type. Only the document needs it: a server
// that builds it for each route would start later.
func describe(a huma.API, o op, input reflect.Type) {
	h, problems := operation(a, o.Route), problemsOf(o, input)
	delete(h.Responses, undescribed)
	maps.Copy(h.Responses, responsesOf(a, problems))
	h.Extensions = map[string]any{codesExtension: problems, ruleExtension: o.may.kind}
	if len(o.may.rights) > 0 {
		h.Extensions[rightsExtension] = o.may.rights
	}
	status := strconv.Itoa(o.status)
	if o.status == 0 {
		status = strconv.Itoa(http.StatusOK)
	}
	ok := h.Responses[status]
	ok.Description = "Done"
	describeHeaders(ok)
	if o.none != "" {
		none := &huma.Response{Description: o.none}
		describeHeaders(none)
		h.Responses[strconv.Itoa(http.StatusNoContent)] = none
	}
	describeForms(a, h, input)
	if slices.Contains([]string{wire.GetPlan.ID, wire.GetPart.ID, wire.DownloadPart.ID}, o.ID) {
		delete(ok.Headers, "Content-Type") // OpenAPI ignores it here
		ok.Content = map[string]*huma.MediaType{"application/octet-stream": {}}
	}
}

func describeHeaders(r *huma.Response) {
	if r.Headers == nil {
		r.Headers = map[string]*huma.Param{}
	}
	r.Headers[wire.HeaderRequestID] = &huma.Param{Ref: "#/components/headers/RequestId"}
	r.Headers[wire.HeaderProtocol] = &huma.Param{Ref: "#/components/headers/Protocol"}
}

func operation(a huma.API, r wire.Route) *huma.Operation {
	item := a.OpenAPI().Paths[r.Path]
	switch r.Method {
	case http.MethodGet:
		return item.Get
	case http.MethodPut:
		return item.Put
	case http.MethodPost:
		return item.Post
	case http.MethodPatch:
		return item.Patch
	case http.MethodDelete:
		return item.Delete
	}
	panic("api: no route has the method " + r.Method)
}

// document returns the OpenAPI document of all routes.
func (s *server) document() *huma.OpenAPI {
	a := humago.New(http.NewServeMux(), s.config())
	for _, add := range s.routes {
		add(a)
	}
	for _, complete := range s.descriptions {
		complete(a)
	}
	doc := a.OpenAPI()
	// huma lists its own form of errors, which the server never sends.
	schemas := doc.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	return doc
}

// serveDocument serves the document at path plus each file extension.
func (s *server) serveDocument(path string) {
	for ending, form := range map[string]struct {
		mediaType string
		write     func(*huma.OpenAPI) ([]byte, error)
	}{
		".yaml": {"application/openapi+yaml", (*huma.OpenAPI).YAML},
		".json": {"application/openapi+json", func(doc *huma.OpenAPI) ([]byte, error) { return json.Marshal(doc) }},
	} {
		written := sync.OnceValues(func() ([]byte, error) { return form.write(s.document()) })
		s.mux.HandleFunc("GET "+path+ending, func(w http.ResponseWriter, r *http.Request) {
			doc, err := written()
			if err != nil {
				writeProblem(w, s.fail(r.Context(), "document", fmt.Errorf("write the OpenAPI document: %w", err)))
				return
			}
			w.Header().Set("Content-Type", form.mediaType)
			_, _ = w.Write(doc) // the caller may be gone
		})
	}
}
