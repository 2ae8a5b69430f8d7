package config

import (
	"tributary/sources/consul"
	"tributary/sources/consulkv"
	"tributary/sources/dubbo"
	"tributary/sources/eureka"
	"tributary/sources/file"
	"tributary/sources/kube"
	"tributary/sources/nacos"
	"tributary/sources/xds"
)

// Scheme describes a kind of source.
type Scheme struct {
	Names    []string        // the schemes of its addresses, the one with TLS last
	Kind     string          // the parameter kind, if kinds of source share a name; the first is the default
	Settings func() Settings // returns empty settings
	Address  string          // an example, with %s for host:port if the source reads a server
	Form     string          // a sentence for the reference: the forms of an address
	Port     string          // on which init looks for a server; empty if it does not
	Comment  string          // about a server that init has found
}

// Schemes returns the kinds of sources. It is the only list of them: the reference, messages, init and tests follow it.
func Schemes() []Scheme {
	return []Scheme{
		{
			Names: []string{consul.Scheme, consul.SecureScheme}, Settings: func() Settings { return new(Consul) },
			Address: "consul://%s", Form: "consul://host:port or consul+https://host:port is a Consul.",
			Port: "8500", Comment: "a Consul: the services of its own datacenter are served, those of others with " +
				"datacenters: [dc1, dc2]; give it a token that may read services and nodes with tokenFile, if it has ACLs",
		},
		{
			Names: []string{dubbo.ConsulScheme, dubbo.ConsulSecureScheme}, Kind: dubbo.Kind,
			Settings: func() Settings { return new(DubboConsul) }, Address: "consul://%s?kind=dubbo",
			Form: "consul://host:port?kind=dubbo is a Consul with Dubbo providers.",
		},
		{
			Names: []string{consulkv.Scheme, consulkv.SecureScheme}, Settings: func() Settings { return new(ConsulKV) },
			Address: "consul-kv://%s/mesh", Form: "consul-kv://host:port/prefix or consul-kv+https://host:port/prefix are " +
				"objects in the key-value store of a Consul.",
		},
		{
			Names: []string{dubbo.Scheme}, Settings: func() Settings { return new(Dubbo) }, Address: "zookeeper://%s",
			Form: "zookeeper://host:port?backup=host:port is a ZooKeeper with Dubbo providers.",
			Port: "2181", Comment: "a ZooKeeper, which may have providers of Dubbo",
		},
		{
			Names: []string{dubbo.NacosScheme}, Kind: dubbo.Kind, Settings: func() Settings { return new(Dubbo) },
			Address: "nacos://%s", Form: "nacos://host:port is a Nacos with Dubbo providers.",
		},
		{
			Names: []string{nacos.Scheme}, Kind: nacos.Kind, Settings: func() Settings { return new(Nacos) },
			Address: "nacos://%s?kind=services",
			Form:    "nacos://host:port?kind=services is a Nacos with services of other kinds.",
			Port:    "8848", Comment: "a Nacos: its services are served; nacos://… with ?kind=dubbo is for providers of Dubbo",
		},
		{
			Names: []string{eureka.Scheme, eureka.SecureScheme}, Settings: func() Settings { return new(Eureka) },
			Address: "eureka://%s/eureka", Form: "eureka://host:port,host:port/eureka or eureka+https://host:port/eureka " +
				"are the servers of a Eureka.",
			Port: "8761", Comment: "a Eureka",
		},
		{
			Names: []string{kube.Scheme}, Settings: func() Settings { return new(Kube) }, Address: "k8s://%s",
			Form: "k8s:///path/kubeconfig?context=NAME is a Kubernetes cluster, k8s:// that of the usual kubeconfig or of the " +
				"Pod, and k8s://host:port its API server.",
		},
		{
			Names: []string{file.Scheme}, Settings: func() Settings { return new(File) },
			Address: "fs:///etc/tributary/rules",
			Form:    "fs:///dir is a directory tree or a single file; fs://./dir is relative to this file.",
		},
		{
			Names: []string{xds.Scheme}, Settings: func() Settings { return new(XDS) }, Address: "xds://%s",
			Form: "xds://host:port is a server of MCP over xDS; several equal ones are separated by commas.",
		},
	}
}

func (s Scheme) label() string {
	if s.Kind != "" {
		return s.Names[0] + "?kind=" + s.Kind
	}
	return s.Names[0]
}

// OnlyHosts reports whether a source makes ServiceEntries and WorkloadEntries alone: its settings have a method
// onlyHosts.
func OnlyHosts(settings Settings) bool {
	source, registry := settings.(interface{ onlyHosts() bool })
	return registry && source.onlyHosts()
}
