{{/* The environment of the agent. A test holds it to what pkg/config declares. */}}
{{- define "runner.environment" -}}
{{- $v := .Values -}}
{{- $jobs := $v.jobs -}}
{{- $labels := deepCopy $jobs.labels -}}
{{- if $v.workloadIdentity.azure.jobClientID }}{{ $_ := set $labels "azure.workload.identity/use" "true" }}{{ end -}}
{{/* The API server, which kubelets name to each pod, is never behind the proxy. */}}
{{- $direct := "" -}}
{{- if or $v.proxy.http $v.proxy.https }}{{ $direct = join "," (compact (list $v.proxy.no "$(KUBERNETES_SERVICE_HOST)")) }}{{ end -}}
{{- $all := list
  (dict "name" "FAIRLEAD_URL" "value" $v.controlPlane.url)
  (dict "name" "FAIRLEAD_STEP_URL" "value" $v.controlPlane.jobURL)
  (dict "name" "FAIRLEAD_CA_FILE" "value" (ternary "/etc/fairlead-runner-ca/ca.crt" "" (ne $v.controlPlane.ca.existingSecret "")))
  (dict "name" "FAIRLEAD_ALLOW_PLAIN_HTTP" "value" (ternary "true" "" $v.controlPlane.allowPlainHTTP))
  (dict "name" "FAIRLEAD_IDENTITY" "value" $v.identity.type)
  (dict "name" "FAIRLEAD_RUNNER_ID" "value" $v.runner.id)
  (dict "name" "FAIRLEAD_TRUSTED_KEYS" "value" (join "," $v.runner.trustedKeys))
  (dict "name" "FAIRLEAD_RUNNER_DATA" "value" "/var/lib/fairlead-runner")
  (dict "name" "FAIRLEAD_CONCURRENCY" "value" $v.concurrency)
  (dict "name" "FAIRLEAD_LOG_LEVEL" "value" $v.logLevel)
  (dict "name" "FAIRLEAD_MODE" "value" (ternary "" $v.mode (eq $v.mode "enabled")))
  (dict "name" "FAIRLEAD_FOLLOW" "value" (ternary "" $v.follow (eq $v.follow "configuration")))
  (dict "name" "FAIRLEAD_SHARE_LOG" "value" (ternary "" "false" $v.shareLog))
  (dict "name" "FAIRLEAD_STATUS_ADDRESS" "value" (printf ":%v" $v.status.port))
  (dict "name" "FAIRLEAD_EXECUTOR" "value" "kubernetes")
  (dict "name" "FAIRLEAD_KUBERNETES_NAMESPACE" "value" (include "runner.jobsNamespace" .))
  (dict "name" "FAIRLEAD_KUBERNETES_SERVICE_ACCOUNT" "value" (include "runner.jobsAccount" .))
  (dict "name" "FAIRLEAD_KUBERNETES_IMAGE" "value" (include "runner.jobsImage" .))
  (dict "name" "FAIRLEAD_KUBERNETES_PULL" "value" $v.image.pullPolicy)
  (dict "name" "FAIRLEAD_KUBERNETES_PULL_SECRETS" "value" (join "," $v.image.pullSecrets))
  (dict "name" "FAIRLEAD_KUBERNETES_CPU_REQUEST" "value" $jobs.resources.cpuRequest)
  (dict "name" "FAIRLEAD_KUBERNETES_CPU_LIMIT" "value" $jobs.resources.cpuLimit)
  (dict "name" "FAIRLEAD_KUBERNETES_MEMORY_REQUEST" "value" $jobs.resources.memoryRequest)
  (dict "name" "FAIRLEAD_KUBERNETES_MEMORY_LIMIT" "value" $jobs.resources.memoryLimit)
  (dict "name" "FAIRLEAD_KUBERNETES_DISK" "value" $jobs.resources.disk)
  (dict "name" "FAIRLEAD_KUBERNETES_NODE_SELECTOR" "value" (include "runner.pairs" $jobs.nodeSelector))
  (dict "name" "FAIRLEAD_KUBERNETES_LABELS" "value" (include "runner.pairs" $labels))
  (dict "name" "FAIRLEAD_KUBERNETES_POD_TEMPLATE_FILE" "value" (ternary "/etc/fairlead-runner/pod.yaml" "" (not (empty $jobs.podTemplate))))
  (dict "name" "FAIRLEAD_KUBERNETES_START_TIMEOUT" "value" $jobs.startTimeout)
  (dict "name" "FAIRLEAD_KUBERNETES_STOP_GRACE" "value" $jobs.stopGrace)
  (dict "name" "FAIRLEAD_KUBERNETES_KEEP_FOR" "value" $jobs.keepFor)
  (dict "name" "HTTP_PROXY" "value" $v.proxy.http)
  (dict "name" "HTTPS_PROXY" "value" $v.proxy.https)
  (dict "name" "NO_PROXY" "value" $direct)
-}}
{{- if eq $v.identity.type "oidc" }}{{ $all = append $all (dict "name" "FAIRLEAD_OIDC_TOKEN_FILE" "value" "/var/run/secrets/fairlead/token") }}{{ end -}}
{{- if eq $v.identity.type "key" }}{{ $all = append $all (dict "name" "FAIRLEAD_ENROLMENT_TOKEN_FILE" "value" "/var/run/secrets/fairlead/token") }}{{ end -}}
{{- if eq $v.identity.type "aws-iam" }}{{ $all = append $all (dict "name" "AWS_REGION" "value" $v.identity.aws.region) }}{{ end -}}
{{- range $all }}{{ include "runner.variable" . }}{{ end -}}
{{- end -}}
