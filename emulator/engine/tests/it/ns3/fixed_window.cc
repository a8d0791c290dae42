// The same network, paths, flows and fixed window as a run of lightloom's engine, in ns-3: point-to-point
// devices, its IPv4 and UDP stack, one socket at each end of a flow.
//
// Reads from standard input (written by ../ns3.rs), all numbers decimal:
//
//   network VERTICES CABLES RATE_BPS DELAY_PS PACKET_BYTES ACK_BYTES WINDOW_PACKETS
//   cable A B                      cable i is link 2i from A to B and link 2i+1 back
//   flow SOURCE DESTINATION MESSAGES PACKETS_PER_MESSAGE WAITS_FOR LINK...
//
// WAITS_FOR is the flow whose message k-1 message k waits for, or -1. Every host begins at most one flow and
// ends at most one. Prints `time I PS` for each flow, then `cpu SECONDS`, `hops N` and `events N`.
//
// Switches look a packet's destination address up in a hash table, and every flow has one address for its data
// and one for its acknowledgements, so that both take the given path: cheaper than ns-3's own routing, and the
// same paths as ours. Hosts put acknowledgements first (band 0 of pfifo_fast), as ours do.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdio>
#include <ctime>
#include <iostream>
#include <sstream>
#include <unordered_map>

using namespace ns3;

namespace
{

constexpr uint32_t PPP_IP_UDP = 2 + 20 + 8;
constexpr uint16_t SENDS = 1000;
constexpr uint16_t RECEIVES = 2000;

Ipv4Address DataAddress(uint32_t flow)
{
    return Ipv4Address(0x0a000000 + flow);
}

Ipv4Address AckAddress(uint32_t flow)
{
    return Ipv4Address(0x0b000000 + flow);
}

/// By destination address: an interface, or this host.
class FlowRouting : public Ipv4RoutingProtocol
{
  public:
    static constexpr uint32_t HERE = 0;

    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("FlowRouting").SetParent<Ipv4RoutingProtocol>();
        return id;
    }

    void Lead(Ipv4Address address, uint32_t interface)
    {
        m_next[address.Get()] = interface;
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>, Socket::SocketErrno&) override
    {
        return Way(header.GetDestination());
    }

    bool RouteInput(Ptr<const Packet> packet,
                    const Ipv4Header& header,
                    Ptr<const NetDevice> device,
                    UnicastForwardCallback forward,
                    MulticastForwardCallback,
                    LocalDeliverCallback deliver,
                    ErrorCallback) override
    {
        if (m_next.at(header.GetDestination().Get()) == HERE)
        {
            deliver(packet, header, m_ipv4->GetInterfaceForDevice(device));
        }
        else
        {
            forward(Way(header.GetDestination()), packet, header);
        }
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> ipv4) override
    {
        m_ipv4 = ipv4;
    }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

  private:
    Ptr<Ipv4Route> Way(Ipv4Address destination) const
    {
        Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetDestination(destination);
        route->SetSource(Ipv4Address("9.9.9.9"));
        route->SetGateway(destination);
        route->SetOutputDevice(m_ipv4->GetNetDevice(m_next.at(destination.Get())));
        return route;
    }

    std::unordered_map<uint32_t, uint32_t> m_next;
    Ptr<Ipv4> m_ipv4;
};

class RoutingHelper : public Ipv4RoutingHelper
{
  public:
    RoutingHelper* Copy() const override
    {
        return new RoutingHelper(*this);
    }
    Ptr<Ipv4RoutingProtocol> Create(Ptr<Node>) const override
    {
        return CreateObject<FlowRouting>();
    }
};

/// One flow: both of its ends.
class Flow
{
  public:
    uint32_t number, source, destination, messages, perMessage;
    int64_t waitsFor;
    std::vector<uint32_t> path;
    std::vector<Flow*> waiting;
    Time end;

    void Open(const NodeContainer& nodes, uint32_t packet, uint32_t ack, uint32_t window)
    {
        m_data = packet - PPP_IP_UDP;
        m_ack = ack - PPP_IP_UDP;
        m_window = window;
        m_allowed = waitsFor < 0 ? Total() : perMessage;
        m_from = Bind(nodes.Get(source), SENDS);
        m_from->Connect(InetSocketAddress(DataAddress(number), RECEIVES));
        m_from->SetRecvCallback(MakeCallback(&Flow::Acknowledged, this));
        m_to = Bind(nodes.Get(destination), RECEIVES);
        m_to->Connect(InetSocketAddress(AckAddress(number), SENDS));
        m_to->SetPriority(6); // band 0 of pfifo_fast
        m_to->SetRecvCallback(MakeCallback(&Flow::Arrived, this));
        Simulator::ScheduleWithContext(source, Seconds(0), &Flow::Send, this);
    }

    uint64_t Total() const
    {
        return uint64_t(messages) * perMessage;
    }

  private:
    static Ptr<Socket> Bind(Ptr<Node> node, uint16_t port)
    {
        Ptr<Socket> socket = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
        socket->SetAttribute("RcvBufSize", UintegerValue(1 << 30));
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
        return socket;
    }

    void Send()
    {
        while (m_sent < std::min(m_allowed, m_acknowledged + m_window))
        {
            m_from->Send(Create<Packet>(m_data));
            ++m_sent;
        }
    }

    void Arrived(Ptr<Socket> socket)
    {
        while (socket->Recv())
        {
            ++m_received;
            socket->Send(Create<Packet>(m_ack));
            if (m_received == Total())
            {
                end = Simulator::Now();
            }
            if (m_received % perMessage == 0)
            {
                for (Flow* flow : waiting)
                {
                    flow->m_allowed = std::min(flow->Total(), m_received + flow->perMessage);
                    flow->Send();
                }
            }
        }
    }

    void Acknowledged(Ptr<Socket> socket)
    {
        while (socket->Recv())
        {
            ++m_acknowledged;
            Send();
        }
    }

    uint32_t m_data, m_ack;
    uint64_t m_window, m_allowed, m_sent = 0, m_acknowledged = 0, m_received = 0;
    Ptr<Socket> m_from, m_to;
};

} // namespace

int main()
{
    Time::SetResolution(Time::PS);
    Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize", QueueSizeValue(QueueSize("10000000p")));
    Config::SetDefault("ns3::PfifoFastQueueDisc::MaxSize", QueueSizeValue(QueueSize("10000000p")));

    std::string word;
    uint32_t vertices, cables, packet, ack, window;
    uint64_t rate, delay;
    std::cin >> word >> vertices >> cables >> rate >> delay >> packet >> ack >> window;

    NodeContainer nodes(vertices);
    RoutingHelper routing;
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(routing);
    stack.Install(nodes);

    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rate)));
    wire.SetDeviceAttribute("Mtu", UintegerValue(9000));
    wire.SetChannelAttribute("Delay", TimeValue(PicoSeconds(delay)));
    std::vector<std::pair<uint32_t, uint32_t>> out; // by link: vertex and interface
    std::vector<uint32_t> degree(vertices, 0);
    std::vector<Ptr<NetDevice>> devices;
    for (uint32_t i = 0; i < cables; ++i)
    {
        uint32_t ends[2];
        std::cin >> word >> ends[0] >> ends[1];
        NetDeviceContainer pair = wire.Install(nodes.Get(ends[0]), nodes.Get(ends[1]));
        for (int side : {0, 1})
        {
            Ptr<Ipv4> ipv4 = nodes.Get(ends[side])->GetObject<Ipv4>();
            uint32_t interface = ipv4->AddInterface(pair.Get(side));
            ipv4->AddAddress(interface, Ipv4InterfaceAddress(Ipv4Address(0x0c000000 + 2 * i + side), Ipv4Mask::GetOnes()));
            ipv4->SetUp(interface);
            out.emplace_back(ends[side], interface);
            devices.push_back(pair.Get(side));
            ++degree[ends[side]];
        }
    }
    // A host's device holds one packet; the rest waits where acknowledgements overtake.
    TrafficControlHelper bands;
    bands.SetRootQueueDisc("ns3::PfifoFastQueueDisc");
    for (uint32_t link = 0; link < out.size(); ++link)
    {
        if (degree[out[link].first] == 1)
        {
            DynamicCast<PointToPointNetDevice>(devices[link])->GetQueue()->SetMaxSize(QueueSize("1p"));
            bands.Install(devices[link]);
        }
    }

    std::vector<std::unique_ptr<Flow>> flows;
    std::string line;
    std::getline(std::cin, line);
    while (std::getline(std::cin, line))
    {
        auto flow = std::make_unique<Flow>();
        std::istringstream words(line);
        words >> word >> flow->source >> flow->destination >> flow->messages >> flow->perMessage >> flow->waitsFor;
        for (uint32_t link; words >> link;)
        {
            flow->path.push_back(link);
        }
        flow->number = flows.size();
        flows.push_back(std::move(flow));
    }

    auto table = [&](uint32_t vertex) {
        return DynamicCast<FlowRouting>(nodes.Get(vertex)->GetObject<Ipv4>()->GetRoutingProtocol());
    };
    uint64_t hops = 0;
    for (auto& flow : flows)
    {
        for (uint32_t link : flow->path)
        {
            table(out[link].first)->Lead(DataAddress(flow->number), out[link].second);
            uint32_t back = link ^ 1;
            table(out[back].first)->Lead(AckAddress(flow->number), out[back].second);
        }
        table(flow->destination)->Lead(DataAddress(flow->number), FlowRouting::HERE);
        table(flow->source)->Lead(AckAddress(flow->number), FlowRouting::HERE);
        if (flow->waitsFor >= 0)
        {
            flows[flow->waitsFor]->waiting.push_back(flow.get());
        }
        flow->Open(nodes, packet, ack, window);
        hops += 2 * flow->Total() * flow->path.size();
    }

    std::clock_t begin = std::clock();
    Simulator::Run();
    double cpu = double(std::clock() - begin) / CLOCKS_PER_SEC;
    for (auto& flow : flows)
    {
        std::printf("time %u %lld\n", flow->number, (long long)flow->end.GetPicoSeconds());
    }
    std::printf("cpu %.3f\nhops %llu\nevents %llu\n", cpu, (unsigned long long)hops,
                (unsigned long long)Simulator::GetEventCount());
    return 0;
}
