{{- define "gpu-agent.name" -}}
{{- .Values.nameOverride | default "gpu-agent" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-agent.fullname" -}}
{{- $name := include "gpu-agent.name" . -}}
{{- $derived := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $derived | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-agent.selector" -}}
app.kubernetes.io/name: {{ include "gpu-agent.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Takes a list: root, name. The component is how the controller knows an agent under any name. */}}
{{- define "gpu-agent.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  app.kubernetes.io/component: gpu-agent
  {{- include "gpu-agent.selector" $root | nindent 2 }}
  {{- with $root.Values.additionalLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Nodes of the pools. Karpenter sets the label when a node registers. */}}
{{- define "gpu-agent.affinity" -}}
{{- if .Values.affinity -}}
{{- toYaml .Values.affinity -}}
{{- else -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          {{- if .Values.pools }}
          - {key: karpenter-gpu.dev/pool, operator: In, values: {{ toJson .Values.pools }}}
          {{- else }}
          - {key: karpenter-gpu.dev/pool, operator: Exists}
          {{- end }}
{{- end -}}
{{- end -}}
