package kubernetes

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/runner/internal/setup"
)

// FromOutside returns how a cluster is reached from beside the control plane,
// nil if none is named.
func FromOutside(r setup.Reach) (*rest.Config, error) {
	if !r.Outside() {
		return nil, nil
	}
	if r.Kubernetes == nil {
		return nil, errors.New("this version reaches no cluster of a cloud by the cloud's own identities: make a runner of kind kubernetes, with the cluster's address and a service account's token")
	}
	k := r.Kubernetes
	cfg := &rest.Config{Host: k.Server, BearerToken: string(k.Auth.ServiceAccountToken)}
	for _, of := range []struct {
		field, text string
		to          *[]byte
	}{
		{"certificate_authority_data", k.CertificateAuthorityData, &cfg.CAData},
		{"auth.client_certificate_data", k.Auth.ClientCertificateData, &cfg.CertData},
		{"auth.client_key_data", string(k.Auth.ClientKeyData), &cfg.KeyData},
	} {
		b, err := base64.StdEncoding.DecodeString(of.text)
		if err != nil {
			return nil, fmt.Errorf("cluster.%s is not base64", of.field) // not wrapped: it may quote what it read
		}
		if len(b) > 0 {
			*of.to = b
		}
	}
	// The cluster's proxy, or none: that of the control plane leads elsewhere.
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	if k.ProxyURL != "" {
		proxy, err := url.Parse(k.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("cluster.proxy_url: %w", err)
		}
		cfg.Proxy = http.ProxyURL(proxy)
	}
	return cfg, nil
}
