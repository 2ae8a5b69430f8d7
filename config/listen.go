package config

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"strings"

	"tributary/internal/process"
	"tributary/internal/spiffe"
)

// ListenOff is the address that turns the plaintext xDS server off.
const ListenOff = "off"

// Listen holds the addresses of the servers, as host:port or unix:///PATH. Port 0 means any free port.
type Listen struct {
	// host:port of the xDS server (gRPC, plaintext), or unix:///PATH?mode=0660&group=NAME; off for none, if there is xdsTLS. Default
	// 127.0.0.1:16010.
	XDS string `json:"xds,omitempty"`
	// The xDS server over TLS, beside the plaintext one or instead of it.
	XDSTLS *SecureListen `json:"xdsTLS,omitempty"`
	// host:port of the admin server (HTTP: health, metrics, debug), or unix:///PATH?mode=0660&group=NAME. Default
	// 127.0.0.1:16014.
	Admin string `json:"admin,omitempty"`
	// Has the admin server speak TLS.
	AdminTLS *ServerTLS `json:"adminTLS,omitempty"`
}

// SecureListen is a listener with TLS.
type SecureListen struct {
	// host:port. Default :16012, which is all addresses of the machine.
	Address string `json:"address,omitempty"`
	ServerTLS
}

// ServerTLS has the settings of a listener with TLS. The files are in PEM, and read again when they change; names of
// package spiffe stand for certificates of a SPIFFE Workload API.
type ServerTLS struct {
	// File with the certificate of the server and those that it was signed by. Relative paths are relative to this file.
	// spiffe:// is the first X509-SVID that the SPIFFE Workload API gives, and spiffe://TRUST-DOMAIN/PATH that of this
	// SPIFFE ID.
	Certificate string `json:"certificate"`
	// File with the private key of the certificate; none with spiffe://.
	Key string `json:"key,omitempty"`
	// File with the certificates of the authorities of clients. spiffe:// are the authorities of all trust domains of the
	// Workload API, federated ones included, each for its own SPIFFE IDs; spiffe://TRUST-DOMAIN those of one.
	ClientCAs string `json:"clientCAs,omitempty"`
	// Where the SPIFFE Workload API is, as unix:///PATH or tcp://IP:PORT. Default: $SPIFFE_ENDPOINT_SOCKET.
	WorkloadAPI string `json:"workloadAPI,omitempty"`
	// Whether clients show a certificate that clientCAs signed: none, optional or require. Default: require with
	// clientCAs, none without.
	ClientAuth string `json:"clientAuth,omitempty"`
	// Oldest version of TLS: 1.2 or 1.3. Default: 1.2, the default of Envoy.
	MinVersion string `json:"minVersion,omitempty"`
}

// The values of ServerTLS.ClientAuth.
const (
	ClientAuthNone     = "none"
	ClientAuthOptional = "optional"
	ClientAuthRequire  = "require"
)

func (d *decoder) checkListen(listen *Listen, dir string) {
	type address struct{ key, value string }
	var listeners []address
	check := func(key, fallback string, value *string) {
		*value = cmp.Or(*value, fallback)
		if err := process.CheckAddress(*value); err != nil {
			d.problem(key, "%v", err)
			return
		}
		for _, listener := range listeners {
			if overlap(listener.value, *value) {
				also := "also"
				if *value != listener.value {
					also = "also that of " + listener.value + ", which is"
				}
				d.problem(key, "%s is %s %s", *value, also, listener.key)
			}
		}
		listeners = append(listeners, address{key, *value})
	}
	if listen.XDS == ListenOff && listen.XDSTLS == nil {
		d.problem("listen.xds", "it is off, and there is no listen.xdsTLS: nobody could be served")
	}
	if listen.XDS != ListenOff {
		check("listen.xds", DefaultXDS, &listen.XDS)
	}
	if listen.XDSTLS != nil {
		check("listen.xdsTLS.address", DefaultXDSTLS, &listen.XDSTLS.Address)
		d.checkServerTLS("listen.xdsTLS", &listen.XDSTLS.ServerTLS, dir)
	}
	check("listen.admin", DefaultAdmin, &listen.Admin)
	if listen.AdminTLS != nil {
		d.checkServerTLS("listen.adminTLS", listen.AdminTLS, dir)
	}
}

func (d *decoder) checkServerTLS(key string, settings *ServerTLS, dir string) {
	for _, file := range []struct {
		name     string
		file     *string
		required bool
		check    func(string) error // checks a name for the Workload API
	}{
		{"certificate", &settings.Certificate, true, spiffe.CheckCertificate},
		{
			"key", &settings.Key, !spiffe.Named(settings.Certificate),
			func(string) error { return errors.New("want a file in PEM") },
		},
		{"clientCAs", &settings.ClientCAs, false, spiffe.CheckTrust},
	} {
		switch {
		case *file.file == "" && file.required:
			d.problem(key+"."+file.name, "missing; name a file in PEM")
		case spiffe.Named(*file.file):
			if err := file.check(*file.file); err != nil {
				d.problem(key+"."+file.name, "%v", err)
			}
		default:
			absoluteFile(dir, file.file)
		}
	}
	d.checkWorkloadAPI(key, settings)
	switch settings.ClientAuth {
	case "":
		settings.ClientAuth = ClientAuthNone
		if settings.ClientCAs != "" {
			settings.ClientAuth = ClientAuthRequire
		}
	case ClientAuthNone:
		if settings.ClientCAs != "" {
			d.problem(key+".clientAuth", "none asks for no certificates; leave clientCAs out, or write optional or require")
		}
	case ClientAuthOptional, ClientAuthRequire:
		if settings.ClientCAs == "" {
			d.problem(key+".clientAuth", "%s needs clientCAs: a file with those who sign the certificates of clients",
				settings.ClientAuth)
		}
	default:
		d.problem(key+".clientAuth", "want none, optional or require, got %q", settings.ClientAuth)
	}
	settings.MinVersion = cmp.Or(settings.MinVersion, "1.2")
	d.checkOneOf(key+".minVersion", settings.MinVersion, "1.2", "1.3")
}

// checkWorkloadAPI notes problems of the settings for a Workload API.
func (d *decoder) checkWorkloadAPI(key string, serverTLS *ServerTLS) {
	if spiffe.Named(serverTLS.Certificate) && serverTLS.Key != "" {
		d.problem(key+".key", "the Workload API gives the key with the certificate: leave it out")
	}
	if err := spiffe.CheckAddress(serverTLS.WorkloadAPI); err != nil {
		d.problem(key+".workloadAPI", "%v", err)
	}
	if serverTLS.WorkloadAPI != "" && !spiffe.Named(serverTLS.Certificate) && !spiffe.Named(serverTLS.ClientCAs) {
		d.problem(key+".workloadAPI", "nothing is asked of it: write certificate: %s, clientCAs: %s, or both", spiffe.Scheme,
			spiffe.Scheme)
	}
}

// overlap reports whether two listeners would use the same address.
func overlap(first, second string) bool {
	hostA, portA, err := net.SplitHostPort(first)
	hostB, portB, err2 := net.SplitHostPort(second)
	if err != nil || err2 != nil {
		return first == second // unix sockets
	}
	if portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || allAddresses(hostA) || allAddresses(hostB)
}

// allAddresses reports whether a host stands for all addresses of the machine.
func allAddresses(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// Admin says which pages the admin server has.
type Admin struct {
	// Whether there are the pages below /debug, which tributary status, explain and others ask, and gRPC. Default: true.
	Debug *bool `json:"debug,omitempty"`
	// Whether there are the profiles among them. Default: true.
	Pprof *bool `json:"pprof,omitempty"`
}

// Off reports whether a setting that defaults to true is false.
func Off(setting *bool) bool { return setting != nil && !*setting }

// XDSAddress returns the address of the xDS server: the plaintext listener's, else that of the listener with TLS.
func (l *Listen) XDSAddress() string {
	if l.XDS == ListenOff && l.XDSTLS != nil {
		return l.XDSTLS.Address
	}
	return l.XDS
}

// LoadListen returns the listeners in the file at path. It ignores problems of other keys.
func LoadListen(path string) (*Listen, error) {
	var config Config
	decoder, dir, err := read(path, &config)
	if err != nil {
		return nil, err
	}
	decoder.checkListen(&config.Listen, dir)
	decoder.problems = slices.DeleteFunc(decoder.problems,
		func(p Problem) bool { return p.Key != "" && !strings.HasPrefix(p.Key, "listen") })
	if err := decoder.err(); err != nil {
		return nil, err
	}
	return &config.Listen, nil
}
