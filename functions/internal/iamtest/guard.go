package iamtest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// service is how a service's requests are signed and what permissions they need.
type service struct {
	name  string // in signatures
	calls func(g *Guard, operation string, r *http.Request, body []byte) ([]Call, error)
	wire  protocol
}

// protocol is the form of a service's answers.
type protocol int

const (
	inJSON   protocol = iota
	restXML           // S3's, with the names of its errors
	queryXML          // IAM's
	ec2XML
)

// region returns the region in signatures for the service. IAM has one endpoint.
func (s service) region(own string) string {
	if s.name == "iam" {
		return "us-east-1"
	}
	return own
}

// services lists the services by the SDK's names, as in AWS_ENDPOINT_URL_SQS.
var services = map[string]service{
	"CLOUDWATCH_LOGS": {"logs", (*Guard).logs, inJSON},
	"CODEBUILD":       {"codebuild", (*Guard).codebuild, inJSON},
	"DYNAMODB":        {"dynamodb", (*Guard).dynamodb, inJSON},
	"ECR":             {"ecr", (*Guard).ecr, inJSON},
	"EC2":             {"ec2", (*Guard).ec2, ec2XML},
	"ECS":             {"ecs", (*Guard).ecs, inJSON},
	"EVENTBRIDGE":     {"events", (*Guard).events, inJSON},
	"IAM":             {"iam", (*Guard).iam, queryXML},
	"KMS":             {"kms", (*Guard).kms, inJSON},
	"LAMBDA":          {"lambda", (*Guard).lambda, inJSON},
	"S3":              {"s3", (*Guard).s3, restXML},
	"S3_CONTROL":      {"s3", (*Guard).s3control, restXML},
	"SECRETS_MANAGER": {"secretsmanager", (*Guard).secrets, inJSON},
	"SQS":             {"sqs", (*Guard).sqs, inJSON},
	"SSM":             {"ssm", (*Guard).ssm, inJSON},
}

// Handler serves a service, by the SDK's name of it: it passes requests that IAM allows to
// next and refuses all others.
func (g *Guard) Handler(name string, next http.Handler) (http.Handler, error) {
	s, ok := services[name]
	if !ok {
		return nil, fmt.Errorf("the permissions of requests to %s are not known here", name)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		key, code := g.sts.Verify(r, body, s.name, s.region(g.Region))
		if over, _ := get(g, g.expired, key); over && code == "" {
			code = "ExpiredToken"
		}
		if code != "" {
			s.refuse(w, r, code, "The security token or the signature included in the request is invalid")
			return
		}
		calls, err := s.calls(g, operation(r), r, body)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			g.Report(err)
		} else {
			err = g.Authorize(key, calls...)
		}
		if err != nil {
			s.refuse(w, r, "AccessDenied", err.Error())
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if name == "S3" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			w = &absences{ResponseWriter: w, g: g, s: s, r: r, key: key}
		}
		next.ServeHTTP(w, r)
	}), nil
}

// operation returns the operation of a request in JSON; "": another protocol.
func operation(r *http.Request) string {
	target := r.Header.Get("X-Amz-Target")
	return target[strings.LastIndex(target, ".")+1:]
}

// absences answers for an absent object as S3 does: only a caller who may list the bucket
// learns that the object is absent.
type absences struct {
	http.ResponseWriter
	g       *Guard
	s       service
	r       *http.Request
	key     string
	refused bool
}

func (a *absences) WriteHeader(status int) {
	bucket, object := a.g.object(a.r)
	if status == http.StatusNotFound && object != "" {
		if err := a.g.Authorize(a.key, Call{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + bucket, Context: map[string]any{"s3:prefix": object}}); err != nil {
			a.refused = true
			clear(a.Header())
			a.s.refuse(a.ResponseWriter, a.r, "AccessDenied", err.Error())
			return
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *absences) Write(b []byte) (int, error) {
	if a.refused {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}

// jsonCodes, s3Codes and ec2Codes name the errors of the services that have other names than STS.
var (
	jsonCodes = map[string]string{"AccessDenied": "AccessDeniedException", "InvalidClientTokenId": "UnrecognizedClientException", "SignatureDoesNotMatch": "InvalidSignatureException",
		"ExpiredToken": "ExpiredTokenException", "MissingAuthenticationToken": "MissingAuthenticationTokenException", "IncompleteSignature": "IncompleteSignatureException"}
	s3Codes  = map[string]string{"InvalidClientTokenId": "InvalidAccessKeyId", "MissingAuthenticationToken": "AccessDenied", "IncompleteSignature": "AuthorizationHeaderMalformed"}
	ec2Codes = map[string]string{"AccessDenied": "UnauthorizedOperation", "InvalidClientTokenId": "AuthFailure", "SignatureDoesNotMatch": "AuthFailure", "ExpiredToken": "RequestExpired",
		"MissingAuthenticationToken": "AuthFailure", "IncompleteSignature": "AuthFailure"}
)

// failure is a service's error in XML.
type failure struct {
	XMLName       xml.Name `xml:"Error"`
	Type          string   `xml:",omitempty"`
	Code, Message string
}

// refuse answers with the service's error for a code of STS.
func (s service) refuse(w http.ResponseWriter, r *http.Request, code, message string) {
	var answer any
	switch s.wire {
	case restXML:
		if own, ok := s3Codes[code]; ok {
			code = own
		}
		answer = failure{Code: code, Message: message}
	case queryXML:
		answer = struct {
			XMLName xml.Name `xml:"ErrorResponse"`
			Error   failure
		}{Error: failure{Type: "Sender", Code: code, Message: message}}
	case ec2XML:
		if own, ok := ec2Codes[code]; ok {
			code = own
		}
		answer = struct {
			XMLName xml.Name  `xml:"Response"`
			Errors  []failure `xml:"Errors>Error"`
		}{Errors: []failure{{Code: code, Message: message}}}
	}
	if answer != nil {
		text, err := xml.Marshal(answer)
		if err != nil {
			panic(err) // strings are valid
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			_, _ = w.Write(text) // the client may be gone
		}
		return
	}
	if own, ok := jsonCodes[code]; ok {
		code = own
	}
	text, err := json.Marshal(map[string]string{"__type": code, "message": message})
	if err != nil {
		panic(err) // strings are valid
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amzn-ErrorType", code)
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(text)), 10)) // the SDK verifies it for DynamoDB
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(text)
}

// errUnknown reports a request whose permissions are not known here.
var errUnknown = errors.New("the permissions of the request are not known here")

func unknown(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnknown}, args...)...)
}
