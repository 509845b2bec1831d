// Package remote says how a cluster is reached by an agent that is not in it:
// with the credentials of the runner's configuration, or, of a cloud's cluster,
// as whoever the control plane is to the cloud. Then there is nothing to keep:
// where the cluster is, and what is shown to it, is asked when it is needed, and
// again before it is over.
package remote

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Options say who the control plane is to the clouds.
type Options struct {
	Session string       // by which a cloud's own log tells whose runner it was
	AWS     aws.Config   // needed for those of clouds
	HTTP    *http.Client // asks the clouds other than AWS; nil: http.DefaultClient
	Now     func() time.Time
}

// Config returns how the API server of the cluster is reached, nil if none is
// named. It asks nobody. What a cloud will not give shows in the error of each
// request, as an executor.LaunchError if the configuration, or what was granted
// to it, must be changed first.
func Config(r runnerspec.Configuration, o Options) (*rest.Config, error) {
	switch r := r.(type) {
	case *runnerspec.KubernetesRunner:
		if r.Cluster != nil {
			return given(r.Cluster)
		}
	case *runnerspec.EKSRunner:
		if r.Cluster != nil {
			return found(newEKS(*r.Cluster, o), r.Cluster.ProxyURL, o.Now)
		}
	case *runnerspec.GKERunner:
		if r.Cluster != nil {
			return found(newGKE(*r.Cluster, o), r.Cluster.ProxyURL, o.Now)
		}
	case *runnerspec.AKSRunner:
		if r.Cluster != nil {
			return found(newAKS(*r.Cluster, o), r.Cluster.ProxyURL, o.Now)
		}
	}
	return nil, nil
}

// given is the way to a cluster whose credentials are in the configuration.
func given(k *runnerspec.KubernetesCluster) (*rest.Config, error) {
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
	var err error
	cfg.Proxy, err = proxy(k.ProxyURL)
	return cfg, err
}

// proxy is the cluster's, or none: that of the control plane leads elsewhere.
func proxy(text string) (func(*http.Request) (*url.URL, error), error) {
	if text == "" {
		return func(*http.Request) (*url.URL, error) { return nil, nil }, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cluster.proxy_url: %w", err)
	}
	return http.ProxyURL(u), nil
}
