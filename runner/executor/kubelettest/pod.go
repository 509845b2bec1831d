package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serviceAccountMount is the folder of a pod's token, which the API server adds to
// each pod.
const serviceAccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// volumes creates a folder for each volume of the pod. A process has the root
// folder of this machine. So the returned Replacer replaces the paths of mounts in
// the pod's arguments and variables. /tmp is not replaced: all processes share it.
// A real pod finds a token at a fixed path. That token does not exist here, so the
// agent's configuration file gets the path of a kubeconfig, and the container the
// variable KUBECONFIG.
func (k *Kubelet) volumes(p *corev1.Pod) (moved *strings.Replacer, err error) {
	var pairs []string
	if k.o.Cluster == nil {
		return strings.NewReplacer(), nil
	}
	root := k.root(p)
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		if m.MountPath == "/tmp" {
			continue
		}
		if m.MountPath == serviceAccountMount {
			if err := k.kubeconfig(p, k.kubeconfigOf(p)); err != nil {
				return nil, err
			}
			continue
		}
		i := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("the pod has no volume %s", m.Name)
		}
		folder, err := k.volume(p, root, p.Spec.Volumes[i])
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, m.MountPath, folder)
	}
	return strings.NewReplacer(pairs...), nil
}

// root returns the folder of the pod's volumes.
func (k *Kubelet) root(p *corev1.Pod) string {
	return filepath.Join(k.logs, "pods", string(p.UID))
}

// kubeconfigOf returns the path of the kubeconfig of the pod's service account.
func (k *Kubelet) kubeconfigOf(p *corev1.Pod) string {
	return filepath.Join(k.root(p), "kubeconfig")
}

func (k *Kubelet) volume(p *corev1.Pod, root string, v corev1.Volume) (string, error) {
	folder := filepath.Join(root, v.Name)
	files := map[string][]byte{}
	switch {
	case v.PersistentVolumeClaim != nil:
		folder = filepath.Join(k.logs, "claims", v.PersistentVolumeClaim.ClaimName)
	case v.Secret != nil:
		s, err := k.c.CoreV1().Secrets(k.namespace).Get(k.ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, item := range v.Secret.Items {
			if files[item.Path] = s.Data[item.Key]; files[item.Path] == nil {
				return "", fmt.Errorf("secret %s has no key %s", s.Name, item.Key)
			}
		}
	case v.ConfigMap != nil:
		c, err := k.c.CoreV1().ConfigMaps(k.namespace).Get(k.ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for name, text := range c.Data {
			files[name] = []byte(strings.Replace(text, "\n  job:\n", "\n  job:\n    kubeconfig: "+filepath.Join(root, "kubeconfig")+"\n", 1))
		}
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if t := source.ServiceAccountToken; t != nil {
				token, err := k.token(p, []string{t.Audience}, t.ExpirationSeconds)
				if err != nil {
					return "", err
				}
				files[t.Path] = []byte(token)
			}
		}
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

func (k *Kubelet) token(p *corev1.Pod, audiences []string, seconds *int64) (string, error) {
	t, err := k.c.CoreV1().ServiceAccounts(k.namespace).CreateToken(k.ctx, p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return t.Status.Token, nil
}

// roleAnnotation is the annotation of a service account with the ARN of its role of AWS.
const roleAnnotation = "eks.amazonaws.com/role-arn"

// identity returns the variables by which the clients of AWS find the role of the pod's service account; none if it has no role.
func (k *Kubelet) identity(p *corev1.Pod) ([]string, error) {
	if k.o.Region == "" || p.Spec.ServiceAccountName == "" {
		return nil, nil
	}
	account, err := k.c.CoreV1().ServiceAccounts(k.namespace).Get(k.ctx, p.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	role := account.Annotations[roleAnnotation]
	if role == "" {
		return nil, nil
	}
	token, err := k.token(p, []string{"sts.amazonaws.com"}, nil)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(k.root(p), "aws-token")
	if err := errors.Join(os.MkdirAll(k.root(p), 0o700), os.WriteFile(file, []byte(token), 0o600)); err != nil {
		return nil, err
	}
	return []string{"AWS_ROLE_ARN=" + role, "AWS_WEB_IDENTITY_TOKEN_FILE=" + file, "AWS_STS_REGIONAL_ENDPOINTS=regional",
		"AWS_REGION=" + k.o.Region, "AWS_DEFAULT_REGION=" + k.o.Region}, nil
}

// kubeconfig writes a kubeconfig with the identity of the pod's service account.
func (k *Kubelet) kubeconfig(p *corev1.Pod, file string) error {
	token, err := k.token(p, nil, nil)
	if err != nil {
		return err
	}
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: k.o.Cluster.Host, InsecureSkipTLSVerify: true}
	api.AuthInfos["pod"] = &clientcmdapi.AuthInfo{Token: token}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "pod"}
	api.CurrentContext = "x"
	return clientcmd.WriteToFile(*api, file)
}

func probeURL(c corev1.Container, get *corev1.HTTPGetAction) string {
	port := get.Port.IntValue()
	for _, p := range c.Ports {
		if p.Name == get.Port.String() {
			port = int(p.ContainerPort)
		}
	}
	return fmt.Sprintf("http://127.0.0.1:%d%s", port, get.Path)
}

// probe probes whether the container is ready, and reports changes.
func (k *Kubelet) probe(pod string, uid types.UID, r *container, url string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Timeout: time.Second}
	was := false
	for {
		select {
		case <-r.ended:
			return
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
		resp, err := client.Get(url)
		is := err == nil && resp.StatusCode < 400
		if err == nil {
			resp.Body.Close()
		}
		if is != was {
			if err := k.ready(pod, uid, is); err == nil {
				was = is
			} else if !apierrors.IsConflict(err) && k.ctx.Err() == nil {
				k.t.Logf("kubelet: report the readiness of %s: %v", pod, err)
			}
		}
	}
}

func (k *Kubelet) ready(pod string, uid types.UID, is bool) error {
	ctx := context.WithoutCancel(k.ctx)
	p, err := k.c.CoreV1().Pods(k.namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil || p.UID != uid || len(p.Status.ContainerStatuses) == 0 {
		return err
	}
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].Started = is, &is
	p.Status.Conditions = nil
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: status, LastTransitionTime: metav1.Now()})
	}
	_, err = k.c.CoreV1().Pods(k.namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}
