package awsrole

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// path is the URL path of the credentials.
const path = "/credentials"

// The limits of the endpoint. Its clients are one tool and its providers.
const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second // includes a request to STS
	maxHeader     = 16 << 10
)

// endpoint serves credentials on the loopback interface to clients with the token.
type endpoint struct {
	server *http.Server
	done   chan struct{} // closed when the server has ended
	url    string
	token  string
}

func serve(source aws.CredentialsProvider) (*endpoint, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the job's credentials: %w", err)
	}
	e := &endpoint{url: "http://" + listener.Addr().String() + path, token: rand.Text(), done: make(chan struct{})}
	e.server = &http.Server{Handler: e.handler(source), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout,
		WriteTimeout: answerTimeout + headerTimeout, MaxHeaderBytes: maxHeader}
	go func() {
		defer close(e.done)
		e.server.Serve(listener) // ends with close
	}()
	return e, nil
}

func (e *endpoint) close() error {
	err := e.server.Close()
	<-e.done
	return err
}

// given is a response with credentials, in the form that the SDKs parse.
type given struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	Token           string
	Expiration      string
}

// refusal is a response without credentials, in the form that the SDKs parse.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *endpoint) handler(source aws.CredentialsProvider) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(e.token)) != 1 {
			answer(w, http.StatusUnauthorized, refusal{"Unauthorized", "the authorization token is missing or wrong"})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		c, err := source.Retrieve(ctx)
		if err != nil {
			answer(w, http.StatusServiceUnavailable, refusal{"RoleUnavailable", err.Error()})
			return
		}
		answer(w, http.StatusOK, given{c.AccessKeyID, c.SecretAccessKey, c.SessionToken, c.Expires.UTC().Format(time.RFC3339)})
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // an error means that the client has closed the connection
}
