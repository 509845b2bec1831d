package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
)

// Client sends requests to the API server of a kubeconfig as its user. Safe for concurrent use.
type Client struct {
	http          *http.Client
	server, token string
}

// NewClient returns a client of the only cluster in the kubeconfig. Its user must have a token. The client does not verify the
// certificate of the server, which a test started on the loopback interface.
func NewClient(kubeconfig string) (*Client, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	var cfg struct {
		Clusters []struct {
			Cluster struct {
				Server string `yaml:"server"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
		Users []struct {
			User struct {
				Token string `yaml:"token"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if err := yaml.Unmarshal(text, &cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	if len(cfg.Clusters) != 1 || len(cfg.Users) != 1 || cfg.Users[0].User.Token == "" {
		return nil, fmt.Errorf("%s does not have one server and one user with a token", kubeconfig)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
		server: cfg.Clusters[0].Cluster.Server, token: cfg.Users[0].User.Token}, nil
}

// URL returns the URL of the API server.
func (c *Client) URL() string { return c.server }

// Token returns the token of the kubeconfig's user.
func (c *Client) Token() string { return c.token }

// Do sends a request and returns the status and the body of the answer. The body of the request is JSON; "": none.
func (c *Client) Do(ctx context.Context, method, path, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// Objects returns all objects of the cluster, as RESOURCE/NAMESPACE/NAME. It omits what the cluster makes by itself: events,
// leases, slices of endpoints and the account "default" of each namespace.
func (c *Client) Objects(ctx context.Context) (map[string]bool, error) {
	var groups struct {
		Groups []struct {
			PreferredVersion struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"preferredVersion"`
		} `json:"groups"`
	}
	if err := c.get(ctx, "/apis", &groups); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		paths = append(paths, "/apis/"+g.PreferredVersion.GroupVersion)
	}
	for _, path := range paths {
		if err := c.objects(ctx, path, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// objects adds the objects of a group's version to found.
func (c *Client) objects(ctx context.Context, path string, found map[string]bool) error {
	var list struct {
		Resources []struct {
			Name  string   `json:"name"`
			Verbs []string `json:"verbs"`
		} `json:"resources"`
	}
	if err := c.get(ctx, path, &list); err != nil {
		return err
	}
	for _, r := range list.Resources {
		if !strings.Contains(strings.Join(r.Verbs, " "), "list") || r.Name == "events" || r.Name == "leases" || r.Name == "endpointslices" {
			continue
		}
		var objects struct {
			Items []struct {
				Metadata struct{ Namespace, Name string }
			}
		}
		if err := c.get(ctx, path+"/"+r.Name, &objects); err != nil {
			return err
		}
		for _, o := range objects.Items {
			if r.Name != "serviceaccounts" || o.Metadata.Name != "default" {
				found[r.Name+"/"+o.Metadata.Namespace+"/"+o.Metadata.Name] = true
			}
		}
	}
	return nil
}

// get reads a path of the API into out.
func (c *Client) get(ctx context.Context, path string, out any) error {
	status, answer, err := c.Do(ctx, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("GET %s is answered with %d: %s", path, status, answer)
	}
	return json.Unmarshal(answer, out)
}
