// Package kubernetes is a ledger in a namespace of a cluster. An entry is an immutable ConfigMap, whose name is the digest of its key.
// The API server creates an object of a name once.
//
// It speaks HTTP without the client of Kubernetes, which no step links. The account of the job needs create, list and delete of
// ConfigMaps in the namespace. It should be a namespace of its own: who can delete a ConfigMap there can make room under a ceiling.
package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/transport"
	"github.com/fairlead/fairlead/runner/ledger"
)

// Options are the API server and the namespace.
type Options struct {
	URL       string // of the API server, without a slash at its end
	Namespace string
	Transport http.RoundTripper
	Token     func() (string, error) // of the account; it changes from time to time
}

// Ledger implements ledger.Ledger.
type Ledger struct{ o Options }

// New returns the ledger that o describes. It sends no request.
func New(o Options) *Ledger { return &Ledger{o} }

// account is the folder in which each pod has the credentials of its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the ledger in a namespace of the cluster in which this process runs.
func InCluster(namespace string) (*Ledger, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" {
		return nil, fmt.Errorf("this job runs in no pod, so it has no cluster with the namespace %s", namespace)
	}
	ca, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the certificates of the cluster: %w", err)
	}
	connections, err := transport.New(string(ca))
	if err != nil {
		return nil, err
	}
	return New(Options{URL: "https://" + net.JoinHostPort(host, port), Namespace: namespace, Transport: connections, Token: func() (string, error) {
		b, err := os.ReadFile(filepath.Join(account, "token"))
		return strings.TrimSpace(string(b)), err
	}}), nil
}

// The label of entries, and the annotation with the whole key, which can have more characters than a label.
const (
	label      = "fairlead.io/ledger" // first part of the key
	annotation = "fairlead.io/key"
	dataKey    = "value"
)

// object is a ConfigMap.
type object struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   metadata          `json:"metadata"`
	Immutable  bool              `json:"immutable,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func nameOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "fairlead-ledger-" + hex.EncodeToString(sum[:])
}

func first(key string) string {
	part, _, _ := strings.Cut(key, "/")
	return part
}

// Create implements ledger.Ledger.
func (l *Ledger) Create(ctx context.Context, key string, value []byte) error {
	if err := ledger.Check(key, value); err != nil {
		return err
	}
	body, err := json.Marshal(object{APIVersion: "v1", Kind: "ConfigMap", Immutable: true, BinaryData: map[string][]byte{dataKey: value},
		Metadata: metadata{Name: nameOf(key), Labels: map[string]string{label: first(key)}, Annotations: map[string]string{annotation: key}}})
	if err == nil {
		err = l.do(ctx, http.MethodPost, "", nil, body, nil)
	}
	if failed, ok := errors.AsType[*statusError](err); ok && failed.status == http.StatusConflict {
		return fmt.Errorf("%s: %w", key, ledger.ErrExists)
	}
	if err != nil {
		return fmt.Errorf("create an entry of the ledger: %w", err)
	}
	return nil
}

// page is how many objects one request lists. The largest answer then has 50 MiB.
const page = 100

// List implements ledger.Ledger.
func (l *Ledger) List(ctx context.Context, prefix string) ([]ledger.Entry, error) {
	var all []ledger.Entry
	query := url.Values{"labelSelector": {label + "=" + first(prefix)}, "limit": {fmt.Sprint(page)}}
	for {
		var list struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []object `json:"items"`
		}
		if err := l.do(ctx, http.MethodGet, "", query, nil, &list); err != nil {
			return nil, fmt.Errorf("list the ledger: %w", err)
		}
		for _, o := range list.Items {
			key := o.Metadata.Annotations[annotation]
			if strings.HasPrefix(key, prefix) && o.Metadata.Name == nameOf(key) {
				all = append(all, ledger.Entry{Key: key, Value: o.BinaryData[dataKey]})
			}
		}
		if list.Metadata.Continue == "" {
			break
		}
		query.Set("continue", list.Metadata.Continue)
	}
	slices.SortFunc(all, func(a, b ledger.Entry) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// Keys implements ledger.Ledger. The API server has no list without content for the accounts of jobs.
func (l *Ledger) Keys(ctx context.Context, prefix string) ([]string, error) {
	all, err := l.List(ctx, prefix)
	keys := make([]string, len(all))
	for i, e := range all {
		keys[i] = e.Key
	}
	return keys, err
}

// Remove implements ledger.Ledger.
func (l *Ledger) Remove(ctx context.Context, key string) error {
	if err := ledger.Check(key, nil); err != nil {
		return err
	}
	err := l.do(ctx, http.MethodDelete, "/"+nameOf(key), nil, nil, nil)
	if failed, ok := errors.AsType[*statusError](err); ok && failed.status == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove an entry of the ledger: %w", err)
	}
	return nil
}

// statusError is a refusal of the API server.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the cluster answers %d: %s", e.status, e.message)
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 128 << 20

// do sends a request about ConfigMaps of the namespace. It does not repeat it: the answer to a repeated create would be that the
// object exists.
func (l *Ledger) do(ctx context.Context, method, name string, query url.Values, body []byte, into any) error {
	token, err := l.o.Token()
	if err != nil {
		return fmt.Errorf("read the token of the service account: %w", err)
	}
	at := l.o.URL + "/api/v1/namespaces/" + url.PathEscape(l.o.Namespace) + "/configmaps" + name
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.GetBody = nil // the transport must not repeat it either
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := l.o.Transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var why struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(answer, &why) // a proxy answers with something else
		return &statusError{resp.StatusCode, why.Message}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
