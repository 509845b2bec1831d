package infratest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// BucketsAreSafe checks that each bucket is private, versioned, encrypted, retained
// when its stack is deleted, and refuses requests without TLS. If a bucket's objects
// expire, its noncurrent versions must expire too, because otherwise they stay and
// cost money. The policy of a shared bucket lets other accounts read by a condition, so
// only the blocks of public ACLs must be on.
func BucketsAreSafe(t *testing.T, s Stack, shared ...string) {
	t.Helper()
	n := 0
	for id, r := range s.Resources {
		if r.Type != "AWS::S3::Bucket" {
			continue
		}
		n++
		p := r.Properties
		blocks := []string{"BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"}
		if slices.Contains(shared, id) {
			blocks = blocks[:2]
		}
		for _, block := range blocks {
			if m, _ := p["PublicAccessBlockConfiguration"].(map[string]any); m[block] != true {
				t.Errorf("the bucket %s lacks %s", id, block)
			}
		}
		if !strings.Contains(fmt.Sprint(p["VersioningConfiguration"]), "Enabled") {
			t.Errorf("the bucket %s keeps no versions", id)
		}
		if !strings.Contains(fmt.Sprint(p["BucketEncryption"]), "SSEAlgorithm") {
			t.Errorf("the bucket %s is not encrypted", id)
		}
		if !r.Stays() {
			t.Errorf("the bucket %s is deleted with its stack", id)
		}
		lifecycle, _ := p["LifecycleConfiguration"].(map[string]any)
		rules, _ := lifecycle["Rules"].([]any)
		for _, r := range rules {
			if rule := r.(map[string]any); rule["ExpirationInDays"] != nil && rule["NoncurrentVersionExpiration"] == nil {
				t.Errorf("objects that expire in the bucket %s stay as noncurrent versions: %v", id, rule["Id"])
			}
		}
		tls := false
		for _, q := range s.Resources {
			if q.Type != "AWS::S3::BucketPolicy" || q.Properties["Bucket"] != strings.ToLower(id) {
				continue
			}
			for _, st := range Statements(q.Properties["PolicyDocument"]) {
				resources := fmt.Sprint(st["Resource"])
				tls = tls || st["Effect"] == "Deny" && st["Principal"] == "*" && fmt.Sprint(st["Action"]) == "[s3:*]" &&
					fmt.Sprint(st["Condition"]) == "map[Bool:map[aws:SecureTransport:false]]" &&
					strings.Contains(resources, s.ARN(id)+" ") && strings.Contains(resources, s.ARN(id)+"/*")
			}
		}
		if !tls {
			t.Errorf("the bucket %s can be used without TLS", id)
		}
	}
	if n == 0 {
		t.Error("the stack has no bucket")
	}
}

// Statements returns the statements of a policy.
func Statements(document any) (out []map[string]any) {
	m, _ := document.(map[string]any)
	list, _ := m["Statement"].([]any)
	for _, s := range list {
		out = append(out, s.(map[string]any))
	}
	return out
}

// Narrow lists the exceptions of AllowsAreNarrow.
type Narrow struct {
	ResourceLess []string // actions that support no resource
	Except       []string // "resource id/Sid" of statements that other tests check
}

// AllowsAreNarrow checks that no statement of a role or a managed policy allows all
// actions of a service, or an action on all resources.
func AllowsAreNarrow(t *testing.T, s Stack, n Narrow) {
	t.Helper()
	used := map[string]bool{}
	for id, r := range s.Resources {
		var documents []any
		switch r.Type {
		case "AWS::IAM::Role":
			list, _ := r.Properties["Policies"].([]any)
			for _, p := range list {
				documents = append(documents, p.(map[string]any)["PolicyDocument"])
			}
		case "AWS::IAM::RolePolicy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy":
			documents = append(documents, r.Properties["PolicyDocument"])
		case "AWS::IAM::User", "AWS::IAM::AccessKey":
			t.Errorf("%s is a %s: there are no static credentials", id, r.Type)
		}
		for _, d := range documents {
			for _, st := range Statements(d) {
				if st["Effect"] != "Allow" {
					continue
				}
				where := fmt.Sprintf("%s/%v", id, st["Sid"])
				if slices.Contains(n.Except, where) {
					used[where] = true
					continue
				}
				if st["NotAction"] != nil || st["NotResource"] != nil {
					t.Errorf("%s uses NotAction or NotResource", where)
				}
				for _, action := range many(st["Action"]) {
					if action == "*" || strings.HasSuffix(action, ":*") {
						t.Errorf("%s allows %s", where, action)
					}
					for _, resource := range many(st["Resource"]) {
						if resource == "*" && !slices.Contains(n.ResourceLess, action) {
							t.Errorf("%s allows %s on everything", where, action)
						}
					}
				}
			}
		}
	}
	for _, e := range n.Except {
		if !used[e] {
			t.Errorf("the statement %s does not exist any more: remove the exception", e)
		}
	}
}

// ARNsNameTheirType checks that no policy of an identity has an ARN with a wildcard for the
// type of its resource, such as */name: AWS does not define what such an ARN matches, and the
// simulator matches nothing.
func ARNsNameTheirType(t *testing.T, s Stack) {
	t.Helper()
	checked := 0
	for id, r := range s.Resources {
		documents := []any{r.Properties["PolicyDocument"]}
		for _, p := range s.Policies(id) {
			documents = append(documents, p)
		}
		for _, d := range documents {
			for _, st := range Statements(d) {
				for _, arn := range append(many(st["Resource"]), many(st["NotResource"])...) {
					parts := strings.SplitN(arn, ":", 6)
					if len(parts) < 6 || parts[2] == "s3" { // S3 has no types
						continue
					}
					checked++
					if typ := strings.IndexAny(parts[5], "/:"); typ > 0 && strings.Contains(parts[5][:typ], "*") {
						t.Errorf("%s/%v has the ARN %s, with a wildcard for the type", id, st["Sid"], arn)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no policy has an ARN")
	}
}

// many returns one string or a list of strings as a list.
func many(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, s := range v {
			out = append(out, fmt.Sprint(s))
		}
	}
	return out
}
