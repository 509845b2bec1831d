// Package remote connects an agent to a cluster in which the agent does not run. It uses the credentials of the runner's
// configuration. For a cluster of a cloud, it uses the control plane's identity in that cloud, and stores no credentials:
// it requests the cluster's address and the tokens when they are needed, and new tokens before they expire.
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

// Options have the control plane's identity in the clouds.
type Options struct {
	Session string       // name of the runner's sessions in a cloud's own log
	AWS     aws.Config   // needed for clouds' clusters
	HTTP    *http.Client // sends requests to clouds other than AWS; nil: http.DefaultClient
	Now     func() time.Time
}

// Config returns the connection to the cluster's API server, or nil if the configuration names no cluster. It sends no
// request. If the cloud refuses access, each request returns the refusal as its error. The error is an executor.LaunchError
// if a person must change the configuration or a permission first.
func Config(r runnerspec.Configuration, o Options) (*rest.Config, error) {
	switch r := r.(type) {
	case *runnerspec.KubernetesRunner:
		if r.Cluster != nil {
			return configured(r.Cluster)
		}
	case *runnerspec.EKSRunner:
		if r.Cluster != nil {
			return discovered(newEKS(*r.Cluster, o), r.Cluster.ProxyURL, o.Now)
		}
	case *runnerspec.GKERunner:
		if r.Cluster != nil {
			return discovered(newGKE(*r.Cluster, o), r.Cluster.ProxyURL, o.Now)
		}
	case *runnerspec.AKSRunner:
		if r.Cluster != nil {
			return discovered(newAKS(*r.Cluster, o), r.Cluster.ProxyURL, o.Now)
		}
	}
	return nil, nil
}

// configured returns the connection to a cluster whose credentials are in the configuration.
func configured(k *runnerspec.KubernetesCluster) (*rest.Config, error) {
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
			return nil, fmt.Errorf("cluster.%s is not base64", of.field) // not wrapped: err may quote the secret
		}
		if len(b) > 0 {
			*of.to = b
		}
	}
	var err error
	cfg.Proxy, err = proxy(k.ProxyURL)
	return cfg, err
}

// proxy returns the proxy function for the cluster. If text is "", no proxy is used: the control plane's own proxy is for
// other destinations.
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
