{{/*
What each way to the driver asks of the pod. NVML needs /dev/nvidiactl, /dev/nvidia* and
libnvidia-ml.so.1, all of which NVIDIA's container runtime brings into an unprivileged
container. Only a privileged one may open the devices without it.
*/}}
{{- define "gpu-agent.privileged" -}}
{{- if eq .Values.driver.access "Host" -}}
{{- if not (hasPrefix "/host/" .Values.driver.library) -}}
{{- fail (printf "driver.library is %q: driver.access Host needs the path of libnvidia-ml.so.1 below /host, such as /host/usr/lib64/libnvidia-ml.so.1" .Values.driver.library) -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{- define "gpu-agent.securityContext" -}}
{{- if include "gpu-agent.privileged" . -}}
privileged: true
runAsUser: 0
readOnlyRootFilesystem: true
{{- else -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}
{{- end -}}

{{- define "gpu-agent.environment" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- if eq .Values.driver.access "Runtime" }}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
{{- else if eq .Values.driver.access "RuntimeMounts" }}
- {name: NVIDIA_VISIBLE_DEVICES, value: /var/run/nvidia-container-devices}
{{- end }}
{{- if not (include "gpu-agent.privileged" .) }}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpu-agent.mounts" -}}
{{- if .Values.policy }}
- {name: policy, mountPath: /etc/gpu-agent, readOnly: true}
{{- end }}
{{- if eq .Values.driver.access "RuntimeMounts" }}
- {name: all-devices, mountPath: /var/run/nvidia-container-devices/all, readOnly: true}
{{- else if include "gpu-agent.privileged" . }}
- {name: devices, mountPath: /dev}
- {name: driver, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end -}}

{{- define "gpu-agent.volumes" -}}
{{- if .Values.policy }}
- name: policy
  configMap: {name: {{ include "gpu-agent.fullname" . }}-policy}
{{- end }}
{{- if eq .Values.driver.access "RuntimeMounts" }}
- name: all-devices
  hostPath: {path: /dev/null}
{{- else if include "gpu-agent.privileged" . }}
- name: devices
  hostPath: {path: /dev}
- name: driver
  hostPath: {path: {{ .Values.driver.hostRoot }}}
{{- end }}
{{- end -}}
