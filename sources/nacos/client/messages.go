package client

import (
	"encoding/json"
	"errors"
	"fmt"

	"tributary/internal/names"
)

// The bodies of requests, in JSON, with the needed fields only.
type (
	serverCheck struct{}
	healthCheck struct{}

	connectionSetup struct {
		ClientVersion string            `json:"clientVersion"`
		Tenant        string            `json:"tenant"`
		Labels        map[string]string `json:"labels"`
		Abilities     struct{}          `json:"clientAbilities"`
	}

	serviceList struct {
		Namespace string `json:"namespace"`
		Group     string `json:"groupName"`
		Page      int    `json:"pageNo"`
		Size      int    `json:"pageSize"`
		Selector  string `json:"selector"`
	}

	subscribe struct {
		Namespace string `json:"namespace"`
		Group     string `json:"groupName"`
		Service   string `json:"serviceName"`
		Clusters  string `json:"clusters"`
		Subscribe bool   `json:"subscribe"`
	}

	configQuery struct {
		DataID string `json:"dataId"`
		Group  string `json:"group"`
		Tenant string `json:"tenant"`
	}
)

// answer has the fields of every response.
type answer struct {
	ResultCode int    `json:"resultCode"`
	ErrorCode  int    `json:"errorCode"`
	Message    string `json:"message"`
	RequestID  string `json:"requestId"`
}

// The codes of Nacos.
const (
	codeOK           = 200
	codeNotFound     = 300 // of configuration
	codeUnregistered = 301 // the server does not know the connection, or not yet
	codeDenied       = 403
)

// err returns the error of a response.
func (a answer) err() error {
	switch {
	case a.ResultCode == codeOK:
		return nil
	case a.ErrorCode == codeDenied || a.ResultCode == codeDenied:
		return fmt.Errorf("%w: %s", ErrDenied, a.Message)
	case a.ErrorCode == codeNotFound:
		return ErrAbsent
	case a.ErrorCode == codeUnregistered:
		return errUnregistered
	}
	return fmt.Errorf("%s (code %d)", a.Message, a.ErrorCode)
}

// The errors of requests, which are no failure of the connection.
var (
	ErrDenied = errors.New("access denied")
	ErrAbsent = errors.New("not found")
)

var errUnregistered = errors.New("the server does not know our connection")

type serviceListAnswer struct {
	answer

	Count int      `json:"count"`
	Names []string `json:"serviceNames"`
}

type subscribeAnswer struct {
	answer

	Service serviceInfo `json:"serviceInfo"`
}

type configAnswer struct {
	answer

	Content string `json:"content"`
}

// push is a request of the server: a service changed.
type push struct {
	RequestID string      `json:"requestId"`
	Service   serviceInfo `json:"serviceInfo"`
}

// serviceInfo has all instances of a service.
type serviceInfo struct {
	Name  string            `json:"name"`
	Group string            `json:"groupName"`
	Hosts []json.RawMessage `json:"hosts"`
	Time  int64             `json:"lastRefTime"` // the server's time in milliseconds
}

// size returns the memory of a service in bytes.
func (s serviceInfo) size() (bytes int) {
	for _, host := range s.Hosts {
		bytes += len(host)
	}
	return bytes
}

// Instance is an instance of a service.
type Instance struct {
	IP       string
	Port     int
	Weight   float64
	Healthy  bool
	Enabled  bool
	Cluster  string
	Metadata map[string]string
}

// maxInstance is the size of the largest instance. Recent versions of Nacos limit metadata to 1 KiB.
const maxInstance = 1 << 20

// instances reads the instances of a service. It skips unreadable ones with a warning.
func (s serviceInfo) instances() (instances []Instance, warnings []string) {
	for _, raw := range s.Hosts {
		i, err := ParseInstance(raw)
		if err != nil {
			warnings = append(warnings, "an instance: "+err.Error())
			continue
		}
		instances = append(instances, i)
	}
	return instances, warnings
}

// ParseInstance parses an instance of Nacos.
func ParseInstance(raw json.RawMessage) (Instance, error) {
	if len(raw) > maxInstance {
		return Instance{}, fmt.Errorf("%d bytes: more than %d are not read", len(raw), maxInstance)
	}
	document := struct {
		IP       string                     `json:"ip"`
		Port     int                        `json:"port"`
		Weight   float64                    `json:"weight"`
		Healthy  bool                       `json:"healthy"`
		Enabled  bool                       `json:"enabled"`
		Cluster  string                     `json:"clusterName"`
		Metadata map[string]json.RawMessage `json:"metadata"`
	}{Weight: 1, Healthy: true, Enabled: true}
	if err := json.Unmarshal(raw, &document); err != nil {
		return Instance{}, err
	}
	if document.IP == "" || document.Port < 0 || document.Port > 65535 {
		return Instance{}, fmt.Errorf("%q and %d are no address and port", document.IP, document.Port)
	}
	i := Instance{
		IP: names.Host(document.IP), Port: document.Port, Weight: document.Weight, Healthy: document.Healthy,
		Enabled:  document.Enabled,
		Cluster:  document.Cluster,
		Metadata: make(map[string]string, len(document.Metadata)),
	}
	for key, value := range document.Metadata {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		i.Metadata[key] = text
	}
	return i, nil
}
